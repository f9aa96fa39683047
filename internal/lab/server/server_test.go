// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/study"
)

func TestPageHasItsExactSize(t *testing.T) {
	for _, n := range []int{1, 20, 44, 45, 46, 375, 2048} {
		if got := len(page(n)); got != n {
			t.Errorf("page(%d) has %d bytes", n, got)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		reply reply
		want  string
	}{
		{reply{200, "s1", 375}, ""},
		{reply{404, "s1", 375}, "real server s1: answers with status 404, want 200: an error page would be measured"},
		{reply{200, "s1", 153}, "real server s1: the page has 153 bytes, want 375"},
		{reply{200, "s2", 375}, `real server s1: its address answers with the name "s2"`},
	} {
		err := c.reply.check("s1", 375)
		if got := text(err); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.reply, got, c.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// start runs a server in a namespace of its own.
func start(t *testing.T) (*host.Namespace, Server) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	if _, err := lookNginx(); err != nil {
		t.Skip(err)
	}
	run, err := host.NewRun("imbang-servertest")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := host.NewNamespace(run.Name("s1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	n, err := Start(ns, "s1", study.Server{Kind: study.Nginx, Page: 375}, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return ns, n
}

func TestServerAnswersAndStops(t *testing.T) {
	ns, n := start(t)
	target := netip.MustParseAddrPort("127.0.0.1:80")
	if err := n.WaitReady(context.Background(), ns, target); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(context.Background(), ns, netip.MustParseAddrPort("[::1]:80")); err != nil {
		t.Error(err)
	}
	pids, err := n.PIDs()
	if err != nil || len(pids) != 2 {
		t.Errorf("processes %v, %v; want a master and one worker", pids, err)
	}
	n.Stop()
	n.Stop()
	for _, pid := range pids {
		if unix.Kill(pid, 0) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// Every URL of a study has the page.
func TestNginxAnswersURLs(t *testing.T) {
	ns, n := start(t)
	target := netip.MustParseAddrPort("127.0.0.1:80")
	if err := n.WaitReady(t.Context(), ns, target); err != nil {
		t.Fatal(err)
	}
	ask := func(path string) *load.Result {
		r, err := load.Run(t.Context(), load.Plan{
			Target: target, ServerHeader: Header, URLs: 1000, Path: path, Rate: 500, Connections: 20,
			Clients: []load.Client{{Namespace: ns.Path()}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	url, none := ask(study.NginxURLs+"{url}"), ask("/none/{url}")
	if url.Status.Success != 20 || url.PerServer["s1"] != 20 || url.Bytes.Content != 20*375 {
		t.Errorf("URLs: %+v of %+v, %+v; want 20 pages of 375 bytes", url.Status, url.PerServer, url.Bytes)
	}
	if none.Status.ClientError != 20 {
		t.Errorf("elsewhere: %+v, want 20 errors", none.Status)
	}
}

// Servers with the same content serve that, and say which directory has none.
func TestNginxServesContent(t *testing.T) {
	ns, first := start(t)
	first.Stop()
	content := t.TempDir()
	spec := study.Server{Kind: study.Nginx, Content: content}
	if _, err := Start(ns, "s1", spec, t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "real server s1: content: open "+content+"/index.html") {
		t.Errorf("without a page: %v", err)
	}
	if err := os.WriteFile(filepath.Join(content, "index.html"), []byte("shared\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := Start(ns, "s1", spec, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	if err := n.WaitReady(t.Context(), ns, netip.MustParseAddrPort("127.0.0.1:80")); err != nil { // with as many bytes
		t.Error(err)
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	ns, n := start(t)
	if err := n.WaitReady(context.Background(), ns, netip.MustParseAddrPort("127.0.0.1:80")); err != nil {
		t.Fatal(err)
	}
	// The port is taken: nginx tries for some seconds and gives up.
	second, err := Start(ns, "s2", study.Server{Kind: study.Nginx, Page: 375}, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = second.WaitReady(ctx, ns, netip.MustParseAddrPort("127.0.0.1:81"))
	if err == nil || !strings.Contains(err.Error(), "real server s2") || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("got %v; want the server's name and its own complaint", err)
	}
}

func TestComplaintOfASilentServer(t *testing.T) {
	dir := t.TempDir()
	n := &nginx{dir: dir}
	if got := n.complaint(); got != "its error log is empty" {
		t.Errorf("got %q", got)
	}
	os.WriteFile(filepath.Join(dir, "error.log"), []byte("first\nlast\n"), 0o644)
	if got := n.complaint(); got != "last" {
		t.Errorf("got %q, want last", got)
	}
}
