// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"imbang/internal/model"
)

// Whoever waits for input that does not come is woken, with what came.
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
