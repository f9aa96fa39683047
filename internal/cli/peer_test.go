// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " Yes \n": true, "n\n": false, "\n": false, "": false, "yellow\n": false} {
		if got := confirmed(t.Context(), strings.NewReader(answer), io.Discard, "Apply? "); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
}

// Ctrl-C ends the question, although nothing was typed.
func TestConfirmedInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	cancel()
	if confirmed(ctx, r, io.Discard, "Apply? ") {
		t.Error("confirmed by nobody")
	}
}
