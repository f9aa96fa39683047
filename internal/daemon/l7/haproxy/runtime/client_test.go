// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A socket that is not there, does not reply, or says too much ends a command in time.
func TestClientIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := Client{Path: path, Limit: 1000}
	command := Command{About: "server web/a", Line: "set server web/a state maint"}
	if err := c.Run(t.Context(), command); !errors.Is(err, ErrNotRunning) || !strings.HasPrefix(err.Error(), "server web/a: ") {
		t.Errorf("without a socket: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.Timeout = 50 * time.Millisecond
	if err := c.Run(t.Context(), command); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a reply: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx, command); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1000)) // the command: one that is not read fails the client's write
			_, _ = conn.Write(make([]byte, 4000))
			conn.Close()
		}
	}()
	c.Timeout = time.Minute
	if err := c.Run(t.Context(), command); err == nil || !strings.Contains(err.Error(), "longer than 1000 bytes") {
		t.Errorf("a long reply: %v", err)
	}
}

func TestProcesses(t *testing.T) {
	const head = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n"
	p, err := parseProcesses(head + "5941            master          12 [failed: 3]  0d00h00m46s     2.6.12-1+deb12u4\n" +
		"# workers\n5992            worker          2               0d00h00m33s     2.6.12-1+deb12u4\n" +
		"# old workers\n5990 worker 3 0d00h01m33s 2.6.12\n5991 worker 4 0d00h01m33s 2.6.12\n# programs\n\n")
	if err != nil || p.Master != 5941 || p.Reloads != 12 || p.Failed != 3 || p.Version != "2.6.12-1+deb12u4" || len(p.Workers) != 1 || p.Workers[0] != 5992 || len(p.Old) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "Unknown command", head, head + "x master y [failed: 0] z 2.6\n", head + "1 master 2\n", head + "1 master 0 [failed: 0] z 2.6\n# workers\nx worker 1\n"} {
		if p, err := parseProcesses(bad); err == nil {
			t.Errorf("%q is %+v", bad, p)
		}
	}
}

func TestServerStatesWithoutColumn(t *testing.T) {
	for _, bad := range []string{"", "Can't find backend.\n", "1\n# be_id be_name\n3 web\n", "1\n# be_name srv_name srv_id srv_addr srv_port srv_admin_state srv_uweight\nweb a x 1.2.3.4 5 0 1\n"} {
		if s, err := parseServerStates(bad); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func TestReason(t *testing.T) {
	got := Reason("[NOTICE]   (1) : haproxy version is 2.6\n[ALERT]    (1) : config : parsing [a.cfg:54] : unknown keyword 'bogus' in 'backend' section\n" +
		"[ALERT]    (1) : config : Error(s) found in configuration file : a.cfg\n[ALERT]    (1) : config : Fatal errors found in configuration.\n[WARNING]  (1) : Loading failure!\n")
	if got != "parsing [a.cfg:54] : unknown keyword 'bogus' in 'backend' section" {
		t.Errorf("%q", got)
	}
}
