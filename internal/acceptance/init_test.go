// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/lab/topology"
)

// A first configuration of a director with a table changes nothing of it.
func TestInitKeepsTable(t *testing.T) {
	f := newFarm(t, 2)
	vip := f.Virtual(topology.IPv4).String() + ":80"
	lines := "-A -t " + vip + " -s wlc -p 300\n-a -t " + vip + " -r " + f.Servers[0].Addr[topology.IPv4].String() + ":80 -m -w 3\n-a -t " + vip + " -r " + f.Servers[1].Addr[topology.IPv4].String() + ":80 -m -w 1\n-A -f 7 -s sh -b sh-port\n"
	must(t, f.Director, lines, "ipvsadm", "-R")
	before := must(t, f.Director, "", "ipvsadm", "-Sn")
	file := filepath.Join(t.TempDir(), "imbang.yaml")
	must(t, f.Director, "", "init", "-f", file)
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `client_device: "`+topology.ClientDevice+`"`) {
		t.Errorf("%v\n%s", err, text)
	}
	if o := imbang(t, f.Director, "", "init", "-f", file); o.status != 3 || !strings.Contains(o.stderr, "exists") {
		t.Errorf("%+v", o)
	}
	if got := must(t, f.Director, "", "plan", file); got != "no change\n" {
		t.Errorf("plan: %s", got)
	}
	k := &keeper{farm: f, dir: t.TempDir(), config: file}
	k.start()
	t.Cleanup(k.stop)
	if after := k.do("ipvsadm", "-Sn"); after != before {
		t.Errorf("the table was\n%sand is\n%s", before, after)
	}
}

// The configuration of a director has how it is attached: the daemon that takes it over
// attaches it the same way when a device was made again.
func TestInitKeepsMode(t *testing.T) {
	f := newFarm(t, 1)
	for _, c := range []struct{ mode, hook string }{{"xdp-generic", "clsact"}, {"tc", "tcx"}} {
		must(t, f.Director, "", "detach", "--keep-table")
		must(t, f.Director, "", "attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice, "--mode", c.mode, "--hook", c.hook)
		file := filepath.Join(t.TempDir(), "imbang.yaml")
		must(t, f.Director, "", "init", "-f", file)
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "  mode: "+c.mode+"\n  hook: "+c.hook+"\n") {
			t.Errorf("%+v: %v\n%s", c, err, text)
		}
		must(t, f.Director, "", "check", file)
	}
}
