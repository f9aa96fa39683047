// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"log/slog"

	"imbang/internal/director"
)

// run runs a role whose end the test judges.
func (n *node) run(c Config) (r *Replica, ended <-chan error) {
	n.Helper()
	ready := make(chan struct{})
	r, err := New(c, Options{
		Table: n.open(), Log: slog.New(slog.NewTextHandler(n.Output(), nil)),
		Tell:  func() (Source, error) { return director.Tell(director.TellRule{Changes: true}) },
		Ready: func() { close(ready) },
	})
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		result <- n.ns.Do(func() error { return r.Run(ctx) })
	}()
	n.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case <-ready:
	case err := <-result:
		n.Fatal(err)
	}
	return r, result
}
