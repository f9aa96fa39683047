// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func ask(s Server, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestApplication(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	a, err := NewApplication(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewApplication(t.Context(), file) // another worker
	if err != nil {
		t.Fatal(err)
	}
	const ann = `{"name":"ann","password":"pw"}`
	for _, c := range []struct {
		s                  Server
		method, path, body string
		status             int
		want               string
	}{
		{a, "GET", "/", "", 200, `{"status":"up"}`},
		{a, "POST", "/api/auth/register", ann, 201, `{"name":"ann"}`},
		{b, "POST", "/api/auth/register", ann, 409, `{"error":"the name is taken"}`},
		{b, "POST", "/api/auth/register", "ann", 400, `{"error":"want a JSON object with name and password"}`},
		{b, "POST", "/api/auth/login", ann, 200, `{"token":`},
		{b, "POST", "/api/auth/login", `{"name":"ann","password":"no"}`, 401, `{"error":"unknown name or wrong password"}`},
		{b, "POST", "/api/auth/login", `{"name":"bob","password":"no"}`, 401, `{"error":"unknown name or wrong password"}`},
		{b, "GET", "/api/me", "", 401, `{"error":"log in first"}`},
		{b, "GET", "/api/me?access_token=known", "", 200, `{"name":"known"}`},
		{b, "GET", "/nowhere", "", 404, "404 page not found"},
	} {
		if status, got := ask(c.s, c.method, c.path, c.body); status != c.status || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, status, got, c.status, c.want)
		}
	}
	if err := a.SetSpeed(2); err == nil {
		t.Error("an application with a speed")
	}
}

// Of a hundred that register one name at two workers at once, one succeeds.
func TestOneNameRegistersOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	var workers []Server
	for range 2 {
		s, err := NewApplication(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, s)
	}
	var mu sync.Mutex
	got := map[int]int{}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			status, _ := ask(workers[i%2], "POST", "/api/auth/register", `{"name":"same","password":"pw"}`)
			mu.Lock()
			got[status]++
			mu.Unlock()
		})
	}
	all.Wait()
	if got[http.StatusCreated] != 1 || got[http.StatusConflict] != 99 {
		t.Errorf("statuses %v, want one 201 and 99 409", got)
	}
}
