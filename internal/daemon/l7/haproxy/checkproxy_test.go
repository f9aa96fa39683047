// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// HAProxy's own checks begin as the connections of clients do, also where they name the same port.
func TestEngineChecksSendProxy(t *testing.T) {
	p := newPlace(t)
	heads := make(chan string, 100)
	l := p.listen(t, "127.0.1.1:8080")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			heads <- line
			c.Close()
		}
	}()
	for _, port := range []uint16{0, 8080} {
		_, stop := p.start(t, web(servers(1), func(_ *l7.Listener, b *l7.Backend) {
			b.SendProxy, b.Check = 1, &l7.EngineCheck{Path: "/", Port: port, Interval: 500 * time.Millisecond}
		}), nil, func(o *Options) { o.Fallback = true })
		select {
		case head := <-heads:
			if !strings.HasPrefix(head, "PROXY ") {
				t.Errorf("port %d: a check begins with %q", port, head)
			}
		case <-time.After(time.Minute):
			t.Errorf("port %d: there is no check", port)
		}
		stop()
		for len(heads) > 0 {
			<-heads
		}
	}
}
