// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// A reader that waits for input is woken at the end of the context, with what it has read.
func TestReadUntilDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from, to := io.Pipe()
	defer to.Close()
	r := untilDone(ctx, from)
	got := make([]byte, 3)
	go func() { _, _ = to.Write([]byte("abc")) }()
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "abc" {
		t.Fatalf("%q, %v", got, err)
	}
	cancel()
	if _, err := r.Read(got); !errors.Is(err, errInterrupted) {
		t.Errorf("%v, want %v", err, errInterrupted)
	}
}

// Interrupted in the middle of a line: it is said that it was interrupted, not that the
// input is wrong.
func TestImportInterruptedInALine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from, to := io.Pipe()
	defer to.Close()
	r := untilDone(ctx, from)
	go func() {
		_, _ = to.Write([]byte(`{"template":false,"prot`))
		time.Sleep(200 * time.Millisecond)
		cancel()
	}()
	err := eachEntry(r, func(uint64, model.Connection) error { return nil })
	if !errors.Is(err, errInterrupted) {
		t.Errorf("%v, want %v", err, errInterrupted)
	}
}

// A FIFO without a writer, and one whose writer writes nothing, are waited for until the
// signal.
func TestImportInterruptedAtFIFO(t *testing.T) {
	for name, written := range map[string]bool{"no writer": false, "silent writer": true} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			if written {
				w, err := os.OpenFile(fifo, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			done := make(chan error, 1)
			go func() {
				_, err := importConns(ctx, nil, fifo, nil)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, errInterrupted) {
					t.Errorf("%v, want %v", err, errInterrupted)
				}
			case <-time.After(time.Minute):
				t.Error("it waits on")
			}
		})
	}
}

// The signal often ends the writer, too: the end of its stream is no success.
func TestImportInterruptedWithWriter(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	nothing := func([]model.Connection) ([]error, error) { return nil, nil }
	for _, input := range []string{"", `{"template":false,"prot`} {
		var report importReport
		if err := report.enter(ctx, nothing, strings.NewReader(input)); !errors.Is(err, errInterrupted) {
			t.Errorf("%q: %v, want %v", input, err, errInterrupted)
		}
	}
}

// What could not be inserted is not tried again: that would wait for the lock twice, and
// say so twice.
func TestImportInsertFailsOnce(t *testing.T) {
	var entry strings.Builder
	one := connsOfAllKinds()[0]
	if err := json.NewEncoder(&entry).Encode(toConnJSON(&one)); err != nil {
		t.Fatal(err)
	}
	calls, locked := 0, errors.New("locked")
	fails := func([]model.Connection) ([]error, error) { calls++; return nil, locked }
	for _, n := range []int{1, director.InsertBatch, director.InsertBatch + 1} {
		calls = 0
		var report importReport
		err := report.enter(t.Context(), fails, strings.NewReader(strings.Repeat(entry.String(), n)))
		if !errors.Is(err, locked) || strings.Count(err.Error(), "locked") != 1 || calls != 1 {
			t.Errorf("%d entries: inserted %d times: %v", n, calls, err)
		}
	}
}
