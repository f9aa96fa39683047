// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
)

// recording is a file of testdata: what ipvsadm 1.31 printed on Linux 6.1.
type recording struct {
	Transcript []struct {
		Clear  bool // the table was emptied before what follows
		Argv   []string
		Stdin  string
		Stdout string
		Stderr string
		Status int
	}
	// Connections is the kernel's connection table while a recording was
	// made, where it had one.
	Connections []struct {
		Protocol                model.Protocol
		State                   string
		Expires                 time.Duration
		Client, Virtual, Server netip.AddrPort
		Engine, EngineData      string
	}
	// Salt is what the kernel's hash of services had added; see fakeTable.
	Salt uint8
	// Devices are those by which synchronization daemons were started.
	Devices map[string]fakeDevice
}

// salts are those of the recordings that do not say.
var salts = map[string]uint8{"services.json": 80}

// daemons are none yet, by the devices of the recording.
func (r *recording) daemons() *fakeDaemons { return &fakeDaemons{devices: r.Devices} }

func load(t testing.TB, file string) (recording, *fakeTable) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	table := newFake()
	table.salt = r.Salt
	if s, ok := salts[filepath.Base(file)]; ok {
		table.salt = s
	}
	for _, c := range r.Connections {
		table.conns = append(table.conns, model.Connection{Protocol: c.Protocol, State: c.State,
			Expires: c.Expires * time.Second, Client: c.Client, Virtual: c.Virtual, Server: c.Server,
			Engine: c.Engine, EngineData: c.EngineData})
	}
	return r, table
}

func testNames() *names {
	return &names{hostsFile: "testdata/hosts", servicesFile: "testdata/services"}
}

// TestTranscripts replays what was recorded and wants the same bytes.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			r, table := load(t, file)
			daemons := r.daemons()
			for i, c := range r.Transcript {
				if c.Clear {
					table.Flush()
					continue
				}
				var stdout, stderr bytes.Buffer
				status := run(c.Argv[1:], strings.NewReader(c.Stdin), &stdout, &stderr, table.open, daemons, testNames())
				if status != c.Status {
					t.Errorf("%d: %q: status %d, want %d", i, c.Argv, status, c.Status)
				}
				if d := cmp.Diff(c.Stdout, stdout.String()); d != "" {
					t.Errorf("%d: %q: stdout (-want +got):\n%s", i, c.Argv, d)
				}
				if d := cmp.Diff(c.Stderr, stderr.String()); d != "" {
					t.Errorf("%d: %q: stderr (-want +got):\n%s", i, c.Argv, d)
				}
			}
		})
	}
}
