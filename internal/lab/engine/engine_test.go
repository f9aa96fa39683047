// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/topology"
)

// fake stands for the program: it writes down how it was called, and where.
const fake = `#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$1" in
ipvsadm) cat >> "$(dirname "$0")/calls" ;;
status) echo '{"programs":[{"name":"a","run_time_ns":1000,"run_count":10},{"name":"b","run_time_ns":500,"run_count":2}]}' ;;
detach) ls /sys/class/net >/dev/null ;;
esac
if [ "$1" = "$(cat "$(dirname "$0")/fail" 2>/dev/null)" ]; then echo "$1: it is broken" >&2; exit 3; fi
`

// setup builds a small cluster and a fake program, which fails when called
// with the verb fail.
func setup(t *testing.T, fail string) (Setup, string, func() []string) {
	return setupOf(t, fail, topology.Spec{ClientNamespaces: 1, ClientAddresses: 1, Servers: 2})
}

func setupOf(t *testing.T, fail string, spec topology.Spec) (Setup, string, func() []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := topology.Build(run, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	dir := t.TempDir()
	program := filepath.Join(dir, "imbang")
	for name, text := range map[string]string{"imbang": fake, "fail": fail} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	calls := func() []string {
		b, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	return Setup{Cluster: c, Family: topology.IPv4, Servers: c.Servers, Scheduler: "wrr", Weights: []int{3, 1}}, program, calls
}

func TestImbangIsDrivenByItsCommands(t *testing.T) {
	s, program, calls := setup(t, "")
	e, _ := New("imbang", program)
	ctx := context.Background()
	i, err := e.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(i.Targets()); got != "[10.20.0.1:80]" {
		t.Errorf("targets %s, want [10.20.0.1:80]", got)
	}
	cpu, err := i.CPU(ctx)
	if want := (CPU{Known: true, Time: 1500, Runs: 12}); err != nil || cpu != want {
		t.Errorf("CPU %+v, %v; want %+v", cpu, err, want)
	}
	if err := i.Stop(ctx); err != nil {
		t.Error(err)
	}
	want := []string{
		"attach --client-dev ext0 --server-dev int0",
		"ipvsadm -R",
		"-A -t 10.20.0.1:80 -s wrr",
		"-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m -w 3",
		"-a -t 10.20.0.1:80 -r 172.16.0.3:80 -m -w 1",
		"status --output json",
		"detach",
	}
	if diff := cmp.Diff(want, calls()); diff != "" {
		t.Error(diff)
	}
}

// A service of UDP, and what else attach is told.
func TestUDP(t *testing.T) {
	s, program, calls := setup(t, "")
	s.UDP, s.Attach, s.Scheduler = true, []string{"--max-connections", "9"}, "rr"
	e, _ := New("imbang", program)
	i, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{
		"attach --client-dev ext0 --server-dev int0 --max-connections 9",
		"ipvsadm -R",
		"-A -u 10.20.0.1:80 -s rr",
		"-a -u 10.20.0.1:80 -r 172.16.0.2:80 -m -w 3",
		"-a -u 10.20.0.1:80 -r 172.16.0.3:80 -m -w 1",
		"detach",
	}
	if diff := cmp.Diff(want, calls()); diff != "" {
		t.Error(diff)
	}
	rules, err := nftables{}.rules(s)
	if want := "ip daddr 10.20.0.1 udp dport 80 dnat to"; err != nil || !strings.Contains(rules, want) {
		t.Errorf("%v: %s\nwants %s", err, rules, want)
	}
}

// Several virtual addresses are one service, by their mark.
func TestImbangMarksSeveralAddresses(t *testing.T) {
	for family, want := range map[topology.Family][]string{
		topology.IPv4: {
			"attach --client-dev ext0 --server-dev int0",
			"mark add 10.20.0.0/16 1",
			"ipvsadm -R",
			"-A -f 1 -s wrr",
			"-a -f 1 -r 172.16.0.2 -m -w 3",
			"-a -f 1 -r 172.16.0.3 -m -w 1",
		},
		topology.IPv6: {
			"attach --client-dev ext0 --server-dev int0",
			"mark add fd00:20::/64 1",
			"ipvsadm -R",
			"-A -f 1 -6 -s wrr",
			"-a -f 1 -6 -r fd00:16::2 -m -w 3",
			"-a -f 1 -6 -r fd00:16::3 -m -w 1",
		},
	} {
		t.Run(string(family), func(t *testing.T) {
			s, program, calls := setupOf(t, "", topology.Spec{
				Families: []topology.Family{family}, ClientNamespaces: 1, ClientAddresses: 1, Servers: 2, VirtualAddresses: 300,
			})
			s.Family = family
			e, _ := New("imbang", program)
			i, err := e.Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(i.Targets()); n != 300 {
				t.Errorf("%d targets, want 300", n)
			}
			if diff := cmp.Diff(want, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The kernel takes the marks of ipvs, whether or not it has ip_vs.
func TestIPVSMarks(t *testing.T) {
	nft, err := process.Look("nft", nftRemedy)
	if err != nil {
		t.Skip(err)
	}
	s, _, _ := setupOf(t, "", topology.Spec{ClientNamespaces: 1, ClientAddresses: 1, Servers: 2, VirtualAddresses: 300})
	i := ipvsInstance{ns: s.Cluster.Director, targets: s.targets()}
	if err := i.mark(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		out, err := command(t.Context(), i.ns, "nft", nft, "", "list", "ruleset")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got, want := list(), "ip daddr 10.20.0.0/16 tcp dport 80 meta mark set 0x00000001"; !strings.Contains(got, want) {
		t.Errorf("%s\nwants %s", got, want)
	}
	if err := i.unmark(t.Context()); err != nil || list() != "" {
		t.Errorf("%v; left: %s", err, list())
	}
}

func TestImbangThatFailsIsDetached(t *testing.T) {
	s, program, calls := setup(t, "ipvsadm")
	e, _ := New("imbang", program)
	_, err := e.Start(context.Background(), s)
	if want := "imbang ipvsadm -R: ipvsadm: it is broken"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if list := calls(); list[len(list)-1] != "detach" {
		t.Errorf("calls %q; the last is not detach", list)
	}
}

func TestImbangIsDetachedAfterCtrlC(t *testing.T) {
	s, program, calls := setup(t, "")
	e, _ := New("imbang", program)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Start(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if list := calls(); list[len(list)-1] != "detach" {
		t.Errorf("calls %q; the last is not detach", list)
	}
}

func TestDirect(t *testing.T) {
	s, program, _ := setup(t, "")
	e, _ := New("direct", program)
	i, err := e.Start(context.Background(), s)
	if err != nil || fmt.Sprint(i.Targets()) != "[172.16.0.2:80 172.16.0.2:80 172.16.0.2:80 172.16.0.3:80]" {
		t.Fatalf("%v, %v", i, err)
	}
	if cpu, err := i.CPU(context.Background()); err != nil || cpu.Known {
		t.Errorf("CPU %+v, %v; plain forwarding has no figure", cpu, err)
	}
}

func TestEveryNamedEngineExists(t *testing.T) {
	for _, name := range Names() {
		e, ok := New(name, "")
		if !ok || e.Name() != name {
			t.Errorf("engine %s: %v, %v", name, e, ok)
		}
	}
	if len(Names()) != len(factories) {
		t.Errorf("%d names for %d engines", len(Names()), len(factories))
	}
	if _, ok := New("none", ""); ok {
		t.Error("an engine called none")
	}
}

func TestCPUSub(t *testing.T) {
	got := CPU{true, 5 * time.Second, 50}.Sub(CPU{true, 2 * time.Second, 20})
	if want := (CPU{true, 3 * time.Second, 30}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if (CPU{}).Sub(CPU{Known: true}).Known {
		t.Error("the growth of an unknown figure is known")
	}
}
