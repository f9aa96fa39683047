// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
)

func id(key model.ServiceKey, server string) ServerID {
	return ServerID{ServiceID{Key: key}, netip.MustParseAddrPort(server)}
}

// What is saved is loaded, of services of all kinds.
func TestSaveLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state.json")
	if l, err := Load(path); err != nil || len(l.Entries) != 0 {
		t.Errorf("%v, %v", l, err)
	}
	order := Order{By: "root", At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Reason: "disk"}
	web := model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80"))
	b := Book{
		id(web, "172.16.0.2:80"):                            {Drain: &Drain{Order: order, Deadline: order.At.Add(time.Hour)}},
		id(web, "172.16.0.3:80"):                            {Maintenance: &order, Weight: &Weight{order, 7}},
		id(model.MarkKey(3, model.IPv6), "[2001:db8::2]:0"): {Drain: &Drain{Order: order}},
	}
	l := NewLedger()
	for id, s := range b {
		l.Order(id, s, order.At)
	}
	if err := l.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !cmp.Equal(l, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("%v, %v", got, err)
	}
	if !cmp.Equal(b, got.Book(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("%v, want %v", got.Book(), b)
	}
	undone := b.Change(id(web, "172.16.0.2:80"), State{})
	if len(undone) != 2 || len(b) != 3 {
		t.Errorf("%v from %v", undone, b)
	}
}

func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	for text, want := range map[string]string{
		"":                             "unexpected end of JSON input",
		`{"version":2}`:                "version 2, want 1",
		`{"version":1,"servers":[{}]}`: `"" is not a service`,
		`{"version":1,"servers":[{"service":"10.20.0.1:80/tcp","server":"x"}]}`:                                "not an ip:port",
		`{"version":1,"servers":[{"service":"10.20.0.1:80/tcp","server":"1.2.3.4:5","weight":{"weight":-1}}]}`: "weight -1",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "correct the file") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"servers":[{"service":"10.20.0.1:80/tcp","server":"1.2.3.4:5","weight":{"weight":1}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := parse(text); (b == nil) == (err == nil) {
			t.Errorf("%v, %v", b, err)
		}
	})
}
