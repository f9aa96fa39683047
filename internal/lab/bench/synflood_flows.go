// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"imbang/internal/host"
)

// echoPort is where servers return datagrams, with their name in front.
const echoPort = 9

// echo is a server of UDP.
func echo(ns *host.Namespace, name string) (stop func() error, err error) {
	var c net.PacketConn
	if err = ns.Do(func() error {
		c, err = net.ListenPacket("udp", fmt.Sprintf(":%d", echoPort))
		return err
	}); err != nil {
		return nil, err
	}
	go func() {
		in := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(in)
			if err != nil {
				return // closed
			}
			_, _ = c.WriteTo(append([]byte(name+" "), in[:n]...), from)
		}
	}()
	return c.Close, nil
}

// flows are of UDP, were there before the flood, and ask their servers something now and then.
type flows struct {
	conns   []net.Conn
	servers []string // of each
	alive   int      // in the end
}

const (
	flowInterval = time.Second
	flowTries    = 20 // in the end
)

// openFlows opens a flow from each address.
func openFlows(ns *host.Namespace, from []netip.Addr, to netip.AddrPort) (*flows, error) {
	f := &flows{}
	for _, one := range from {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: one.AsSlice()}}
		var c net.Conn
		err := ns.Do(func() (err error) {
			c, err = d.Dial("udp", to.String())
			return err
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.conns = append(f.conns, c)
		for try := 0; ; try++ {
			// Two, as those of a client that exists.
			if server := askEcho(c); server != "" && askEcho(c) == server {
				f.servers = append(f.servers, server)
				break
			}
			if try == flowTries {
				f.close()
				return nil, fmt.Errorf("%s: no reply by UDP before the flood", to)
			}
		}
	}
	return f, nil
}

// askEcho is the name of the server that replies; "": none did.
func askEcho(c net.Conn) string {
	const question = "is there anybody"
	if c.SetDeadline(time.Now().Add(flowInterval/2)) != nil {
		return ""
	}
	if _, err := c.Write([]byte(question)); err != nil {
		return ""
	}
	in := make([]byte, 2048)
	n, err := c.Read(in)
	if err != nil {
		return ""
	}
	server, said, _ := bytes.Cut(in[:n], []byte(" "))
	if string(said) != question {
		return ""
	}
	return string(server)
}

// run asks until the context ends, and then whether the flows still have their servers.
func (f *flows) run(ctx context.Context) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, c := range f.conns {
		all.Go(func() {
			for beat := time.NewTicker(flowInterval); ctx.Err() == nil; {
				askEcho(c)
				select {
				case <-beat.C:
				case <-ctx.Done():
				}
			}
			for range flowTries {
				if server := askEcho(c); server != "" {
					mu.Lock()
					defer mu.Unlock()
					if server == f.servers[i] {
						f.alive++
					}
					return
				}
			}
		})
	}
	all.Wait()
}

func (f *flows) close() {
	for _, c := range f.conns {
		c.Close()
	}
}
