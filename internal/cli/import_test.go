// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/command"
)

// imports runs imbang import with a file of a name and text.
func imports(t *testing.T, name, text string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	status = command.Execute(t.Context(), newRootCommand(), append([]string{"import", file}, args...), strings.NewReader(""), &out, &errs)
	return status, out.String(), strings.ReplaceAll(errs.String(), filepath.Dir(file)+"/", "")
}

func TestImportText(t *testing.T) {
	var unknown strings.Builder // lines that are all listed
	for i := range 16000 {
		fmt.Fprintf(&unknown, "unknown %d%s\n", i, strings.Repeat("x", 200))
	}
	conditional := "virtual_server 10.0.0.1 80 {\nprotocol TCP\n@a lb_kind DR\n@b lb_kind TUN\nreal_server 10.0.1.1 80 {\n}\n}\n"
	refused := "virtual_server 10.0.0.1 80 {\nprotocol TCP\npersistence_engine sip\nreal_server 10.0.1.1 80 {\n}\n}\n"
	for _, one := range []struct {
		about, name, text string
		args              []string
		status            int
		stdout, stderr    string
	}{
		{"one machine's lines", "k.conf", conditional, []string{"--config-id", "b"}, 0, "forward: tunnel", ""},
		{"no machine's lines", "k.conf", conditional, nil, 1, "forward: masquerading", "k.conf:3: @a lb_kind DR: holds for some machines only"},
		{"comments alone", "ldirectord.cf", "# nothing\n", nil, 0, "services: []", "ldirectord.cf has no virtual service\n"},
		{"what imbang check refuses", "k.conf", refused, nil, 1, "", "k.conf:1: services[0].engine: imbang check refuses what it became: "},
		{"includes alone", "k.conf", "include none.conf\n", nil, 1, "services: []", "k.conf:1: include none.conf: no such file\n"},
		{"VRRP alone", "k.conf", "vrrp_instance a {\nversion 3\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\n10.0.0.1\n}\n}\n", []string{"--output", "json"}, 0, "\"groups\": 1,", ""},
		{"script", "dr.sh", "#!/bin/sh\nvip=10.0.0.1\n/sbin/ipvsadm -A -t $vip:80 -s rr\n", nil, 3, "", "dr.sh is a script: import what ipvsadm -Sn prints after it has run, on a machine with ip_vs\n"},
		{"no configuration", "x.txt", "hello\n", nil, 3, "", "x.txt has neither virtual_server nor vrrp_instance blocks, nor virtual= lines, nor lines of ipvsadm -Sn: say what it is with --format\n"},
		{"a file that is too large", "k.conf", "virtual_server 10.0.0.1 80 {\n" + unknown.String() + "}\n", nil, 1, "", "k.conf: the configuration: imbang check refuses what it became: larger than 4096 KiB"},
		{"config-id of another format", "l.cf", "virtual=10.0.0.1:80\n", []string{"--config-id", "b"}, 2, "", "--config-id is for keepalived.conf only"},
	} {
		t.Run(one.about, func(t *testing.T) {
			status, stdout, stderr := imports(t, one.name, one.text, one.args...)
			if status != one.status || !strings.Contains(stdout, one.stdout) || !strings.Contains(stderr, one.stderr) {
				t.Errorf("status %d, want %d\n%s\n%s", status, one.status, stdout, stderr)
			}
		})
	}
}

// Files without an end are refused, and a reader without one ends with the context.
func TestImportEnds(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "k.conf")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fifo, "/dev/zero", t.TempDir()} {
		var errs bytes.Buffer
		status := command.Execute(t.Context(), newRootCommand(), []string{"import", name}, strings.NewReader(""), io.Discard, &errs)
		if status != command.StatusFailed || !strings.Contains(errs.String(), "is not a regular file") {
			t.Errorf("%s: status %d, %s", name, status, errs.String())
		}
	}
	in, silent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if status := command.Execute(ctx, newRootCommand(), []string{"import", "-"}, in, io.Discard, io.Discard); status != command.StatusFailed {
		t.Errorf("status %d", status)
	}
}
