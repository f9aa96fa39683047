// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"net"
	"time"
)

// acceptAgain is the time between failures of accept(2), as of too many open files.
const acceptAgain = 100 * time.Millisecond

// acceptClients serves connections, some at once, until the listener is closed.
func acceptClients(listener net.Listener, atOnce int, serve func(net.Conn)) {
	slots := make(chan struct{}, atOnce)
	for {
		slots <- struct{}{}
		c, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-slots
			time.Sleep(acceptAgain)
			continue
		}
		go func() {
			defer func() { <-slots }()
			serve(c)
		}()
	}
}
