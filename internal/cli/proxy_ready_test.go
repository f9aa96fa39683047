// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/place"
)

// Without listeners imbang proxy has reported that it is ready when it ends: systemd takes an end before
// that for a failure, and starts it again and again.
func TestProxyWithoutListeners(t *testing.T) {
	dir, err := place.ProxyDir()
	if err != nil || supervise.Published(dir) != "" {
		t.Skip("a proxy of this network namespace has a configuration")
	}
	file, socket := filepath.Join(t.TempDir(), "imbang.yaml"), filepath.Join(t.TempDir(), "notify")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	if err := runProxy(t.Context(), file, t.TempDir(), time.Second, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := l.Read(text); err != nil || string(text[:n]) != "READY=1" {
		t.Errorf("%q, %v", text[:n], err)
	}
}
