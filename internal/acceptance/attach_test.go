// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// tc runs tc(8) in a namespace and returns what it prints.
func tc(t *testing.T, ns *host.Namespace, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("tc", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := ns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("tc %s: %v: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// soon is how long to wait for a reply that should not arrive; patience is for one that should.
const soon = 500 * time.Millisecond

// ask makes n connections to the virtual service, each for at most some time,
// and counts the answers.
func ask(t *testing.T, c *topology.Cluster, n int, limit time.Duration) (answers int) {
	t.Helper()
	client := http.Client{Timeout: limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = c.Clients[0].Namespace.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	for range n {
		r, err := client.Get("http://" + c.Virtual(topology.IPv4).String() + "/")
		if err != nil {
			continue
		}
		if body, err := io.ReadAll(r.Body); err == nil && len(body) == 375 {
			answers++
		}
		r.Body.Close()
	}
	return answers
}

// refused sends a datagram to a port of the virtual address that is no
// service, and reports whether the director's own stack said so.
func refused(t *testing.T, c *topology.Cluster, limit time.Duration) (is bool) {
	t.Helper()
	err := c.Clients[0].Namespace.Do(func() error {
		conn, err := net.Dial("udp", c.Virtual(topology.IPv4).String()+":9")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("not the director's")); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, err = conn.Read(make([]byte, 1))
		is = errors.Is(err, syscall.ECONNREFUSED)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// Left to itself, attach takes the hook that the kernel has.
func TestAttachWhereTheKernelCan(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	if err := host.Connect(host.End{NS: ns, Name: "eth0"}, host.End{NS: ns, Name: "eth1"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	attach := []string{"attach", "--client-dev", "eth0", "--server-dev", "eth1"}
	hook := "tcx"
	if o := imbang(t, ns, "", append(attach, "--hook", "tcx")...); o.status != 0 {
		hook = "clsact"
		if o.status != 3 || !strings.Contains(o.stderr, "this kernel has no tcx hook, Linux 6.6 or later is needed (--hook clsact does without)") {
			t.Errorf("attach --hook tcx: status %d, said %q", o.status, o.stderr)
		}
	}
	must(t, ns, "", "detach")
	must(t, ns, "", attach...)
	for _, want := range []string{`client device +eth0 +` + hook + `\n`, `server device +eth1 +` + hook + `\n`} {
		if got := must(t, ns, "", "status"); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("status says\n%swant %s", got, want)
		}
	}
	t.Logf("attached by %s", hook)
	must(t, ns, "", "detach")
}

// On kernels before Linux 6.6 the director is a filter among those that others
// have on the devices: it works, is shown, gives them the packets that are not
// its own, and leaves them alone when it goes.
func TestClsactHook(t *testing.T) {
	c := newCluster(t)
	attach := []string{"attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice, "--hook", "clsact"}
	status := func() string { return must(t, c.Director, "", "status") }
	must(t, c.Director, "", "detach", "--keep-table")
	if ask(t, c, 1, soon) != 0 {
		t.Fatal("detached, and yet a server answers")
	}
	must(t, c.Director, "", attach...)
	for _, want := range []string{`client device +ext0 +clsact\n`, `server device +int0 +clsact\n`} {
		if got := status(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("status says\n%swant %s", got, want)
		}
	}
	if o := imbang(t, c.Director, "", attach...); o.status != 3 || !strings.Contains(o.stderr, "attached to ext0 already") {
		t.Errorf("attached twice: status %d, said %q", o.status, o.stderr)
	}
	if got := ask(t, c, 6, patience); got != 6 || !refused(t, c, patience) {
		t.Errorf("%d of 6 requests answered, or a packet that is not the director's did not get to the stack", got)
	}

	// A filter behind drops what it gets.
	filter := []string{"dev", topology.ClientDevice, "ingress", "pref", "60000", "protocol", "ip"}
	tc(t, c.Director, slices.Concat([]string{"filter", "add"}, filter, []string{"bpf", "bytecode", "1,6 0 0 2", "direct-action"})...)
	if got := ask(t, c, 6, patience); got != 6 || refused(t, c, soon) {
		t.Errorf("with a filter behind that drops: %d of 6 requests answered, or a packet that is not the director's got to the stack", got)
	}
	must(t, c.Director, "", "detach", "--keep-table")
	if got := status(); !strings.HasPrefix(got, "not attached") {
		t.Errorf("detached, status says\n%s", got)
	}
	if refused(t, c, soon) {
		t.Error("another's filter has gone")
	}
	tc(t, c.Director, append([]string{"filter", "delete"}, filter...)...)
	if ask(t, c, 1, soon) != 0 || !refused(t, c, patience) {
		t.Error("detached, and yet a server answers or the stack does not")
	}
	if got := tc(t, c.Director, "qdisc", "show", "dev", topology.ServerDevice); strings.Contains(got, "clsact") {
		t.Errorf("qdiscs of the servers' device after detach:\n%s", got)
	}
}

// Packets to a veth pair into another namespace are not sent by the device, unless
// they are to leave through it.
func TestRedirect(t *testing.T) {
	c := newCluster(t)
	must(t, c.Director, "", "detach", "--keep-table")
	sent := func() (n int) {
		var out bytes.Buffer
		cmd := exec.Command("ip", "-s", "-j", "link", "show", "dev", topology.ServerDevice)
		cmd.Stdout = &out
		err := c.Director.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		var links []struct {
			Stats struct{ TX struct{ Packets int } } `json:"stats64"`
		}
		if err = errors.Join(err, json.Unmarshal(out.Bytes(), &links)); err != nil || len(links) != 1 {
			t.Fatalf("%v: %s", err, out.String())
		}
		return links[0].Stats.TX.Packets
	}
	const requests = 12
	for _, x := range []struct {
		args []string
		all  bool // packets of the requests are sent by the device
	}{{nil, false}, {[]string{"--redirect", "device"}, true}, {[]string{"--redirect", "peer"}, false}} {
		attach := append([]string{"attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice}, x.args...)
		must(t, c.Director, "", attach...)
		if got := ask(t, c, 3, patience); got != 3 { // neighbours are known now
			t.Fatalf("%v: %d of 3 requests answered", x.args, got)
		}
		before := sent()
		if got := ask(t, c, requests, patience); got != requests {
			t.Errorf("%v: %d of %d requests answered", x.args, got, requests)
		}
		if n := sent() - before; x.all && n < 4*requests || !x.all && n > requests {
			t.Errorf("%v: %d packets of %d requests were sent by the servers' device, want all: %v", x.args, n, requests, x.all)
		}
		must(t, c.Director, "", "detach", "--keep-table")
	}
	if o := imbang(t, c.Director, "", "attach", "--client-dev", "ext0", "--server-dev", "int0", "--redirect", "card"); o.status != 2 || !strings.Contains(o.stderr, `unknown value "card" of --redirect (peer or device)`) {
		t.Errorf("status %d, said %q", o.status, o.stderr)
	}
}

// A mode that the devices cannot do is refused and loads no program.
func TestRefusedModeLoadsNothing(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	if err := host.Connect(host.End{NS: ns, Name: "a0"}, host.End{NS: ns, Name: "a1"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	if o := imbang(t, ns, "", "attach", "--client-dev", "a0", "--server-dev", "a1", "--mode", "xdp"); o.status != 3 || !strings.Contains(o.stderr, "native XDP is not possible") {
		t.Errorf("attached: %+v", o)
	}
	if o := imbang(t, ns, "", "status"); o.status != 3 || !strings.Contains(o.stderr, "no director is loaded") {
		t.Errorf("and loaded: %+v", o)
	}
}
