// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"imbang/internal/lab/distribution"
)

// A reply is as long as its path says, and as the page where it says nothing.
func TestSizedReplies(t *testing.T) {
	s := NewStation(Capacity{Distribution: distribution.Constant, Service: time.Microsecond, Concurrency: 1, Speed: 1, Page: 375})
	for _, c := range []struct {
		method, path  string
		stated, bytes int
	}{
		{"GET", "/", 375, 375},
		{"GET", Sized(0), 0, 0},
		{"GET", Sized(7) + "/a/b?c=/bytes/9/", 7, 7},
		{"HEAD", Sized(5000) + "/a", 5000, 0},
		{"GET", Sized(1<<20) + "/big", 1 << 20, 1 << 20},
		{"GET", "/bytes/", 375, 375},
		{"GET", "/bytes/-1/x", 375, 375},
		{"GET", "/bytes/many/x", 375, 375},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if got := w.Header().Get("Content-Length"); got != strconv.Itoa(c.stated) || w.Body.Len() != c.bytes {
			t.Errorf("%s %s: %s bytes stated, %d sent, want %d and %d", c.method, c.path, got, w.Body.Len(), c.stated, c.bytes)
		}
	}
}
