// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repeated is a text for each of n numbers.
func repeated(n int, text func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(text(i))
	}
	return b.String()
}

// A small file that stands for more than a configuration can be is refused, and not written
// out in memory first.
func TestSmallFilesOfMuch(t *testing.T) {
	address := func(i int) string { return fmt.Sprintf("10.%d.%d", i/200, i%200) }
	group := "virtual_server_group G {\n" + repeated(1000, func(i int) string { return address(i) + ".0-255 80\n" }) + "}\n"
	for name, text := range map[string]string{
		"services of a group": group + "virtual_server group G {\nprotocol TCP\n" + repeated(1000, func(i int) string {
			return "real_server 172.16." + fmt.Sprint(i/200, ".", i%200+1) + " 80 {\n}\n"
		}) + "}\n",
		"groups": group + repeated(2000, func(i int) string {
			return fmt.Sprintf("virtual_server group G {\nreal_server 172.16.0.1 %d {\n}\n}\n", i+1)
		}),
		"servers": "virtual=10.0.0.1:80\n" + repeated(4000, func(i int) string { return "\treal=" + address(i) + ".0->" + address(i) + ".255:80 gate\n" }),
		"flags":   "virtual=10.0.0.1:80\n\tscheduler=sh\n" + "\tschedflags=\"" + repeated(9000, func(i int) string { return fmt.Sprint("f", i, ",") }) + "\"\n",
		"words": "global_defs {\n" + repeated(400, func(i int) string {
			return "lvs_timeouts" + repeated(200, func(j int) string { return fmt.Sprint(" ", j) }) + "\n"
		}) + "}\nvrrp_instance a {\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			r, err := importOne(t, "x", []byte(text), Source{})
			if err == nil || !strings.Contains(err.Error(), "x: more than 16 MiB would be written") {
				t.Errorf("%v, %d services", err, r.Services())
			}
		})
	}
}

// A line of more bytes than keepalived reads at once is two lines.
func TestLongLines(t *testing.T) {
	keepalived, err := exec.LookPath("keepalived")
	if err != nil {
		t.Skip("keepalived is not installed")
	}
	comment := func(n int) string { return "# " + strings.Repeat("x", n-2) }
	for _, one := range []struct {
		text, refused string // by keepalived
		losses        []string
	}{
		{comment(1023) + "\nglobal_defs {\n}\n", "", nil},
		{comment(1023) + "junk 3\nglobal_defs {\n}\n", "Unknown keyword 'junk'", []string{"x:1: " + comment(60) + "...: longer than 1023 bytes", "x:1: junk 3: not a keyword of keepalived.conf"}},
		{"$A=" + strings.Repeat("x", 1000) + "\nglobal_defs {\n}\n" + strings.Repeat("y", 23) + "$A\n", "Unknown keyword 'yyyyyyyyyyyyyyyyyyyyyyyxxx", []string{"x:4: yyyyyyyyyyyyyyyyyyyyyyyxxx"}},
		{"$A=" + strings.Repeat("x", 1000) + "\nglobal_defs {\n}\n" + strings.Repeat("y", 24) + "$A\n", "Unknown keyword 'yyyyyyyyyyyyyyyyyyyyyyyy$A'", nil},
	} {
		name := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(name, []byte(one.text), 0o600); err != nil {
			t.Fatal(err)
		}
		said, _ := exec.CommandContext(t.Context(), keepalived, "-t", "-n", "-l", "-f", name).CombinedOutput()
		if !strings.Contains(string(said), one.refused) || one.refused == "" && strings.Contains(string(said), "Unknown") {
			t.Errorf("keepalived says %s, want %q", said, one.refused)
		}
		r, err := Keepalived(t.Context(), "x", []byte(one.text), Source{})
		if strings.Contains(one.refused, "$A") {
			if want := "x:4: $A: with its value the line is longer than 1023 bytes"; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range r.Losses {
			if i >= len(one.losses) || !strings.HasPrefix(l.String(), one.losses[i]) {
				t.Errorf("%s, want %q", l, one.losses)
			}
		}
		if len(r.Losses) != len(one.losses) {
			t.Errorf("%v, want %q", r.Losses, one.losses)
		}
	}
	const want = `x:1: longer than 1023 bytes, behind which keepalived begins another line: split it: a quote that does not end: "`
	if _, err := Keepalived(t.Context(), "x", []byte("a \""+strings.Repeat("y", 1100)+"\""), Source{}); err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 200 {
		t.Errorf("%v, want %s", err, want)
	}
}
