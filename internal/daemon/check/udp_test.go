// SPDX-License-Identifier: Apache-2.0

package check

import (
	"net"
	"testing"
	"time"
)

// Silence is a success also if this machine is too busy to notice it before the timeout.
func TestUDPSilence(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const checks = 500
	results := make(chan Result, checks)
	for range checks {
		go func() { results <- runWithin(t, 3*time.Second, &UDP{Send: "x"}, conn.LocalAddr().String()) }()
	}
	for range checks {
		expect(t, "silence", <-results, true, "no reply, and no ICMP error in ")
	}
}
