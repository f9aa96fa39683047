// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"imbang/internal/host"
)

// Bad input gets one clear line and a status, and changes nothing.
func TestRefusals(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	if err := host.Connect(host.End{NS: ns, Name: "eth0"}, host.End{NS: ns, Name: "eth1"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	must(t, ns, "", "ipvsadm", "-A", "-t", "10.20.0.1:80", "-s", "rr")
	files := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	badStudy := write("bad.yaml", "name: bad\nrepeats: many\n")
	unknownKey := write("unknown.yaml", "name: bad\nrepaets: 3\n")
	notRecording := write("broken.json", `{"scenario": {`)

	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string // in the one line of standard error
	}{
		{"no devices", []string{"attach"}, 2, "attach needs --client-dev and --server-dev"},
		{"no such device", []string{"attach", "--client-dev", "nosuch0", "--server-dev", "lo"}, 3, `no such device "nosuch0"`},
		{"unknown hook", []string{"attach", "--client-dev", "eth0", "--server-dev", "eth1", "--hook", "xdp"}, 2, `unknown hook "xdp" (auto, tcx or clsact)`},
		{"unknown mode", []string{"attach", "--client-dev", "eth0", "--server-dev", "eth1", "--mode", "fast"}, 2, `unknown mode "fast" (auto, tc, xdp or xdp-generic)`},
		{"unknown mode to play in", []string{"conform", "--mode", "fast", "x.json"}, 2, `unknown mode "fast" (auto, tc, xdp or xdp-generic)`},
		{"doctor of half of the devices", []string{"doctor", "--client-dev", "eth0"}, 2, "name both --client-dev and --server-dev"},
		{"doctor of no device", []string{"doctor", "--client-dev", "nosuch0", "--server-dev", "nosuch0"}, 3, `no such device "nosuch0"`},
		{"not Ethernet", []string{"attach", "--client-dev", "lo", "--server-dev", "lo"}, 3, "device lo does not carry Ethernet frames"},
		{"other size", []string{"attach", "--client-dev", "eth0", "--server-dev", "eth0", "--max-servers", "7"}, 3, "sizes are fixed when it is loaded"},
		{"unknown verb", []string{"atach"}, 2, `unknown command "atach"`},
		{"unknown flag", []string{"status", "--bogus"}, 2, "unknown flag: --bogus"},
		{"unknown output", []string{"status", "-o", "xml"}, 2, `unknown output format "xml" (text or json)`},
		{"unknown output of settings", []string{"settings", "-o", "xml"}, 2, `unknown output format "xml" (text or json)`},
		{"unknown output of marks", []string{"mark", "list", "-o", "xml"}, 2, `unknown output format "xml" (text or json)`},
		{"help for an unknown command", []string{"doctr", "--help"}, 2, `unknown command "doctr" (did you mean doctor?)`},
		{"not a mark", []string{"mark", "add", "10.0.0.0/8", "zero"}, 2, `"zero" is not a mark`},
		{"not a prefix", []string{"mark", "add", "10.0.0/8", "3"}, 2, `"10.0.0/8" is not an address or prefix`},
		{"no rule", []string{"mark", "delete", "10.0.0.0/8"}, 3, "no mark rule for 10.0.0.0/8"},
		{"unknown reason", []string{"trace", "--reason", "boredom"}, 2, `unknown reason "boredom" (pass, refused, drop, `},
		{"trace no service", []string{"trace", "--service", "web"}, 2, `"web" is not a service`},
		{"trace no client", []string{"trace", "--client", "10.0.0/8"}, 2, `"10.0.0/8" is not an address or prefix`},
		{"trace no server", []string{"trace", "--server", "172.16.0.2:80"}, 2, `"172.16.0.2:80" is not a server's address`},
		{"why without a port", []string{"why", "10.10.0.2", "10.20.0.1:80"}, 2, `"10.10.0.2" is not a client's address and port`},
		{"why of half", []string{"why", "10.10.0.2:1"}, 2, "accepts 2 arg(s)"},
		{"why of two families", []string{"why", "10.10.0.2:1", "[2001:db8::1]:80"}, 2, "not of one family"},
		{"why of two protocols", []string{"why", "--tcp", "--udp", "10.10.0.2:1", "10.20.0.1:80"}, 2, "one of them"},
		{"setting out of range", []string{"settings", "drop_entry=4"}, 2, `setting drop_entry: "4" is not a number from 0 to 3`},
		{"setting no number", []string{"settings", "am_droprate=3", "secure_tcp=on"}, 2, `setting secure_tcp: "on" is not a number from 0 to 3`},
		{"setting without meaning", []string{"settings", "drop_packet=3", "net.ipv4.vs.amemthresh=2048"}, 2, "setting amemthresh: BPF programs cannot ask for the free memory"},
		{"no such setting", []string{"settings", "drop_entries=3"}, 2, `setting "drop_entries": there is none of that name`},
		{"no scenario", []string{"conform"}, 2, "requires at least 1 arg"},
		{"no file", []string{"conform", "/nonexistent.json"}, 3, "/nonexistent.json: no such file"},
		{"broken scenario", []string{"conform", notRecording}, 3, "not a recorded scenario"},
		{"no study", []string{"lab", "run"}, 2, "name one study"},
		{"unknown study", []string{"lab", "run", "nosuch"}, 2, "nosuch"},
		{"malformed study", []string{"lab", "run", badStudy}, 2, "bad.yaml:2:"},
		{"unknown key", []string{"lab", "run", unknownKey}, 2, "unknown.yaml:2:"},
		{"service exists", []string{"ipvsadm", "-A", "-t", "10.20.0.1:80"}, 255, "Service already exists"},
		{"not an address", []string{"ipvsadm", "-A", "-t", "10.20.0.999:80"}, 2, "illegal virtual server address[:port] specified"},
		{"no such service", []string{"ipvsadm", "-a", "-t", "10.20.0.9:80", "-r", "172.16.0.2"}, 255, "Service not defined"},
		{"unknown scheduler", []string{"ipvsadm", "-E", "-t", "10.20.0.1:80", "-s", "nosuch"}, 255, "Scheduler or persistence engine not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := must(t, ns, "", "ipvsadm", "-Sn") + must(t, ns, "", "settings")
			o := imbang(t, ns, "", c.args...)
			if o.status != c.status {
				t.Errorf("status %d, want %d", o.status, c.status)
			}
			if !strings.Contains(o.stderr, c.want) || strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
				t.Errorf("said %q and printed %q, want one line with %q", o.stderr, o.stdout, c.want)
			}
			if after := must(t, ns, "", "ipvsadm", "-Sn") + must(t, ns, "", "settings"); after != before {
				t.Errorf("table or settings changed:\n%s", after)
			}
		})
	}
}

func TestRefusesOrdinaryUsers(t *testing.T) {
	needRoot(t)
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	// In a mount namespace in which only root may enter the directory of the sockets.
	const closed = `mount -t tmpfs none /run
mkdir -m 700 /run/imbang
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"`
	for _, args := range [][]string{
		{"attach", "--client-dev", "lo", "--server-dev", "lo"},
		{"detach"},
		{"status"},
		{"trace"},
		{"why", "10.10.0.2:1", "10.20.0.1:80"},
		{"ipvsadm", "-Ln"},
		{"ipvsadm", "-A", "-t", "10.20.0.1:80"},
		{"lab", "run", "thesis"},
		{"bench"},
		{"bench", "bulk"},
		{"bench", "path"},
		{"bench", "changes"},
	} {
		for name, o := range map[string]outcome{
			"":        runAs(t, nil, nobody, "", args...),
			" closed": finish(t, nil, exec.Command("unshare", append([]string{"-m", "sh", "-ec", closed, "sh", executable}, args...)...), ""),
		} {
			if o.status == 0 || !strings.Contains(o.stderr, "root") || strings.Count(o.stderr, "\n") != 1 {
				t.Errorf("imbang %s%s: status %d, said %q; want one line that names root", strings.Join(args, " "), name, o.status, o.stderr)
			}
		}
	}
}

// `ip netns exec` gives a command mounts of its own; a director loaded there
// must be found again from everywhere.
func TestDirectorLoadedByIpNetnsExecStays(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	inside := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ip", append([]string{"netns", "exec", ns.Name(), executable}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("imbang %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	const want = "-A -t 10.20.0.1:80 -s rr\n"
	inside("ipvsadm", "-A", "-t", "10.20.0.1:80", "-s", "rr")
	if got := inside("ipvsadm", "-Sn"); got != want {
		t.Errorf("inside: %q", got)
	}
	if got := must(t, ns, "", "ipvsadm", "-Sn"); got != want {
		t.Errorf("outside: %q", got)
	}
	inside("detach")
}

func TestNothingIsLoadedNothingIsLeft(t *testing.T) {
	needRoot(t)
	run, err := host.NewRun("imbang-acceptance")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := host.NewNamespace(run.Name("dir"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if o := imbang(t, ns, "", "attach", "--client-dev", "nosuch0", "--server-dev", "nosuch0"); o.status != 3 {
		t.Errorf("attach to no device: status %d, said %q", o.status, o.stderr)
	}
	for _, args := range [][]string{{"status"}, {"trace"}, {"why", "10.10.0.2:1", "10.20.0.1:80"}, {"detach"}} {
		o := imbang(t, ns, "", args...)
		if o.status != 3 || !strings.Contains(o.stderr, "no director is loaded") {
			t.Errorf("imbang %s: status %d, said %q", args[0], o.status, o.stderr)
		}
	}
	must(t, ns, "", "ipvsadm", "-A", "-t", "10.20.0.1:80")
	must(t, ns, "", "detach")
	if o := imbang(t, ns, "", "status"); o.status != 3 {
		t.Errorf("after detach, status said %q", o.stdout)
	}
}
