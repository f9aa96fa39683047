// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"testing"

	"imbang/internal/director"
)

func TestSettings(t *testing.T) {
	set := func(name string, value uint32) []director.Setting {
		return []director.Setting{{Name: "sync_threshold", Value: 3}, {Name: name, Value: value}}
	}
	for _, c := range []struct {
		name string
		in   []director.Setting
		want Settings
	}{
		{"defaults", nil, Settings{1, 1, 32768, 0}},
		{"no thread", set("sync_ports", 0), Settings{1, 1, 32768, 0}},
		{"eight threads", set("sync_ports", 8), Settings{8, 1, 32768, 0}},
		{"no power of two", set("sync_ports", 7), Settings{4, 1, 32768, 0}},
		{"too many threads", set("sync_ports", 1000), Settings{64, 1, 32768, 0}},
		{"version 0", set("sync_version", 0), Settings{1, 0, 32768, 0}},
		{"any other version", set("sync_version", 5), Settings{1, 1, 32768, 0}},
		{"queue", set("sync_qlen_max", 10), Settings{1, 1, 10, 0}},
		{"sockets", set("sync_sock_size", 1<<20), Settings{1, 1, 32768, 1 << 20}},
	} {
		if got := settingsOf(c.in); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
