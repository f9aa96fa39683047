// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// Changes that interrupt a dump do not make it fail, and a socket works in the namespace that
// it was opened in, from any thread.
func TestInterruptedDump(t *testing.T) {
	ns, _ := withDevice(t)
	var many []netip.Prefix
	for i := range 600 { // more than fits into a message
		many = append(many, netip.MustParsePrefix(fmt.Sprintf("10.50.%d.%d/32", i/200, 1+i%200)))
	}
	must(t, ns.AddAddresses("eth0", many...))
	var reader, writer *Links
	must(t, ns.Do(func() (err error) {
		if reader, err = OpenLinks(); err == nil {
			writer, err = OpenLinks()
		}
		return err
	}))
	defer reader.Close()
	defer writer.Close()
	d := device(t, ns, "eth0")
	stop, done := make(chan struct{}), make(chan error, 1)
	moving := netip.MustParsePrefix("10.60.0.1/32")
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			err := writer.AddMarked(d, moving)
			if err == nil {
				_, err = writer.RemoveMarked(d, []netip.Prefix{moving})
			}
			if err != nil {
				done <- err
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
	}()
	for range 300 {
		devices, err := reader.Devices()
		if err != nil {
			t.Error(err)
			break
		}
		if n := len(devices["eth0"].Addresses); n < len(many) {
			t.Errorf("%d addresses of %d", n, len(many))
		}
	}
	close(stop)
	must(t, <-done)
}
