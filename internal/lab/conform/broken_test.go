// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/director"
	"imbang/internal/testenv"
)

const whole = `{"scenario":{"name":"whole","setup":[],"ops":[["conns"]]},"results":[[]],"kernel":"6.1"}`

// A file that is no recording is one clear error that names it.
func TestBrokenRecordings(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"empty file", "", "EOF"},
		{"truncated", whole[:len(whole)/2], "unexpected EOF"},
		{"truncated second", whole + "\n" + whole[:20], "unexpected EOF"},
		{"not JSON", "ipvsadm -Ln", "invalid character"},
		{"another shape", `{"scenario":[]}`, "cannot unmarshal array"},
		{"no results", `{"scenario":{"name":"x","ops":[["conns"]]}}`, "1 operations and 0 results"},
		{"results of another", `{"scenario":{"name":"x","ops":[["conns"]]},"results":[1,2]}`, "1 operations and 2 results"},
		{"no name", `{"scenario":{"ops":[]},"results":[]}`, "not a recorded scenario"},
		{"operation without a word", `{"scenario":{"name":"x","ops":[["conns"],[]]},"results":[[],[]]}`, "operation 2 is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recording.json")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Read(path)
			if err == nil {
				t.Fatalf("read %d recordings", len(got))
			}
			if text := err.Error(); !strings.Contains(text, c.says) || strings.Count(text, path) != 1 || strings.Contains(text, "\n") {
				t.Errorf("error %q, want one line with the path and %q", text, c.says)
			}
		})
	}
	if _, err := Read("testdata/nothere.json"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "nothere.json") {
		t.Errorf("no file: %v", err)
	}
}

func TestReadMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.json")
	if err := os.WriteFile(path, []byte(whole+"\n\n"+whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || len(got) != 2 || got[1].Scenario.Name != "whole" || got[1].Kernel != "6.1" {
		t.Errorf("%v, %v", got, err)
	}
}

// What cannot be played says so, and leaves nothing behind.
func TestCannotPlay(t *testing.T) {
	testenv.Root(t)
	t.Cleanup(func() { nothingLeft(t) })
	for _, c := range []struct {
		name, text string
		says       string
		cannot     bool // imbang lacks it, the recording is right
	}{
		{"unknown operation", `{"scenario":{"name":"x","ops":[["dance",1]]},"results":[null]}`, `operation "dance"`, true},
		{"refused setup", `{"scenario":{"name":"x","setup":["-A -t 10.20.0.1:80 -s nosuch"],"ops":[]},"results":[]}`, "-s nosuch", true},
		{"unknown match", `{"scenario":{"name":"x","fwmark":[[1,"-p tcp"]],"ops":[]},"results":[]}`, "-p tcp", true},
		{"too few arguments", `{"scenario":{"name":"x","ops":[["open","c1"]]},"results":["refused"]}`, "1 arguments, want 5", false},
		{"argument of another type", `{"scenario":{"name":"x","ops":[["sleep","long"]]},"results":[null]}`, "argument 1", false},
		{"operation that is no word", `{"scenario":{"name":"x","ops":[[7]]},"results":[null]}`, "operation 7", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recording.json")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			all, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			diff, err := Play(t.Context(), all[0], director.ModeTC, Ipvsadm)
			if diff != nil || err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, ErrCannotPlay) != c.cannot {
				t.Errorf("difference %v, error %v; want one that says %q, of what imbang lacks: %t", diff, err, c.says, c.cannot)
			}
		})
	}
}

// The first difference is told, with its operation; an interrupt ends a play.
func TestPlayTellsDifference(t *testing.T) {
	testenv.Root(t)
	t.Cleanup(func() { nothingLeft(t) })
	path := filepath.Join(t.TempDir(), "recording.json")
	text := `{"scenario":{"name":"x","setup":["-A -t 10.20.0.1:80 -s rr"],"ops":[["conns"],["counts","10.20.0.1",80],["ipvsadm","-C"]]},"results":[[],[["172.16.0.2:80",1,0,0]],0]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	diff, err := Play(t.Context(), all[0], director.ModeTC, Ipvsadm)
	const want = `operation 2 ["counts","10.20.0.1",80]: Linux [["172.16.0.2:80",1,0,0]], imbang []`
	if err != nil || diff == nil || diff.String() != want {
		t.Errorf("%v, %v; want %s", diff, err, want)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	count := func(args []string, stdout, stderr *bytes.Buffer) int {
		cancel()
		return Ipvsadm(args, stdout, stderr)
	}
	if diff, err := Play(interrupted, all[0], director.ModeTC, count); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, %v", diff, err)
	}
}
