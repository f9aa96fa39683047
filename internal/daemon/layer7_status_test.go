// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

func TestNotServed(t *testing.T) {
	used := map[string]time.Time{"good": time.Unix(1, 0), "damaged since": time.Unix(1, 0)}
	errs := map[string]string{"damaged since": "no PEM", "never good": "no such file or directory"}
	for _, c := range []struct {
		files []string
		want  bool
	}{
		{[]string{"good"}, false},
		{[]string{"damaged since"}, false},
		{[]string{"never good"}, true},
		{[]string{"never good", "good"}, false},
		{[]string{"not looked at"}, false},
	} {
		if got := notServed(&l7.Listener{TLS: &l7.TLS{Certificates: c.files}}, used, errs); got != c.want {
			t.Errorf("%q: %v", c.files, got)
		}
	}
	if notServed(&l7.Listener{}, used, errs) {
		t.Error("a listener without TLS")
	}
}
