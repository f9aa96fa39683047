// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"imbang/internal/lab/server"
)

// Greet is a real server: it answers every request with its name, in the body
// and in a header, until the context ends.
func Greet(ctx context.Context, name string) error {
	web := &http.Server{
		Addr: fmt.Sprintf(":%d", Port), ReadHeaderTimeout: 30 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(server.Header, name)
			fmt.Fprintln(w, name)
		}),
	}
	context.AfterFunc(ctx, func() { web.Close() })
	if err := web.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
