// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"path/filepath"
	"slices"
	"testing"

	"imbang/internal/daemon/l7"
)

func TestNoLogDirectories(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	c := &l7.Config{Listeners: []l7.Listener{
		{Log: &l7.Log{File: filepath.Join(dir, "a.log")}}, {},
		{Log: &l7.Log{File: filepath.Join(none, "b.log")}}, {Log: &l7.Log{File: filepath.Join(none, "c.log")}},
	}}
	if got := NoLogDirectories(c); !slices.Equal(got, []string{none}) {
		t.Errorf("%v", got)
	}
}
