// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/check"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/model"
)

var update = flag.Bool("update", false, "write the messages of invalid configurations")

// Each invalid configuration stands beside its messages.
func TestInvalid(t *testing.T) {
	paths, err := filepath.Glob("testdata/invalid/*.yaml")
	if err != nil || len(paths) < 60 {
		t.Fatalf("%d invalid configurations, %v", len(paths), err)
	}
	for _, path := range paths {
		config, err := Load(path)
		var mistakes Mistakes
		if config != nil || !errors.As(err, &mistakes) {
			t.Errorf("%s: %v, %v", path, config, err)
			continue
		}
		got := strings.ReplaceAll(err.Error(), "testdata/", "") + "\n"
		golden := strings.TrimSuffix(path, ".yaml") + ".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestUnreadable(t *testing.T) {
	for path, want := range map[string]string{
		"testdata/none.yaml": "configuration: testdata/none.yaml: no such file or directory",
		"testdata":           "configuration: testdata: is a directory",
	} {
		if _, err := Load(path); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A configuration with every key is what it says.
func TestWhole(t *testing.T) {
	c, err := Load("testdata/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Director == nil || c.Director.MaxConnections != 1000000 || len(c.Director.Addresses) != 2 || c.Director.Addresses[1].Device != "lo" || c.Director.Addresses[0].Device != "eth0" {
		t.Errorf("%+v", c.Director)
	}
	if want := []Setting{{"expire_nodest_conn", 1}, {"syn_defence", 1}}; !cmp.Equal(c.Settings, want) {
		t.Errorf("%v", c.Settings)
	}
	if c.Timeouts != (model.Timeouts{TCP: 15 * time.Minute, TCPFin: time.Minute, UDP: 5 * time.Minute}) {
		t.Errorf("%+v", c.Timeouts)
	}
	if want := []synchronize.Config{
		{Role: "master", SyncID: 7, Interface: "eth2", MaxLen: 1400, Group: netip.MustParseAddr("ff02::81"), Port: 9000, TTL: 2},
		{Role: "backup", Interface: "eth2"},
	}; !slices.Equal(c.Roles, want) {
		t.Errorf("%+v", c.Roles)
	}
	replication := replicate.Config{
		Role: replicate.Backup, Listen: netip.MustParseAddrPort("192.0.2.1:8790"), Interface: "eth2", Group: 65535, KeyFile: "/etc/imbang/key",
		To: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:9001"), netip.MustParseAddrPort("192.0.2.3:8790")},
	}
	if c.Replication == nil || !c.Replication.Equal(&replication) {
		t.Errorf("%+v", c.Replication)
	}
	testWholeVRRP(t, c)
	if len(c.Services) != 4 || len(c.Files) != 2 {
		t.Fatalf("%d services of %v", len(c.Services), c.Files)
	}
	web := c.Services[0]
	if web.Sorry == nil || web.Quorum != 3 || web.Hysteresis != 1 || web.OnFailure != Remove || web.Flags != model.Persistent || web.Timeout != 5*time.Minute || web.Netmask != 0xffffff00 {
		t.Errorf("%+v", web)
	}
	a, b := web.Servers[0], web.Servers[1]
	if a.Name != "a" || a.Weight != 1 || len(a.Checks) != 2 || a.SlowStart != 30*time.Second || a.NotifyDown[0] != "/usr/local/bin/down" {
		t.Errorf("%+v", a)
	}
	if b.Name != "172.16.0.3:8080" || b.Weight != 0 || len(b.Checks) != 0 || b.Port != 8080 || b.Upper != 100 || b.Lower != 50 {
		t.Errorf("%+v", b)
	}
	if ch := a.Checks[0]; ch.Kind != "http" || ch.LastKnown || ch.Timing != (check.Timing{
		Interval: 2 * time.Second, Fast: 500 * time.Millisecond, Timeout: time.Second, Rise: 3, Fall: 4, Jitter: 0.2, Spread: 2 * time.Second, Initial: check.Down,
	}) {
		t.Errorf("%+v", ch)
	}
	six := c.Services[1]
	if six.Key != model.AddrKey(model.TCP, mustEndpoint("[2001:db8::1]:80")) || six.Servers[0].TunnelType != model.GUE || six.Servers[0].TunnelPort != 6080 || six.Servers[0].TunnelFlags != model.TunnelRemCsum {
		t.Errorf("%+v", six)
	}
	if mark := c.Services[2]; mark.Key != model.MarkKey(3, model.IPv6) || mark.Servers[0].Forward != model.Route {
		t.Errorf("%+v", mark)
	}
	if sip := c.Services[3]; sip.Engine != "sip" || sip.Flags != model.Persistent|model.OnePacket || sip.Key.Protocol != model.UDP {
		t.Errorf("%+v", sip)
	}
}

func mustEndpoint(text string) netip.AddrPort {
	ap, err := endpoint(text)
	if err != nil {
		panic(err)
	}
	return ap
}

func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*/*.yaml")
	for _, path := range append(paths, "testdata/whole.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("fuzz.yaml", text)
		if (c == nil) == (err == nil) || err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Errorf("%v, %v", c, err)
		}
	})
}
