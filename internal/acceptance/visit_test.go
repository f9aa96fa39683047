// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// dial makes a connection of the client, from a port of its own, that ends
// after a while whatever happens to it.
func (f *farm) dial(ctx context.Context, network, addr string, life time.Duration) (c net.Conn, err error) {
	err = f.Clients[0].Namespace.Do(func() error {
		d := net.Dialer{Timeout: life}
		if c, err = d.DialContext(ctx, network, addr); err != nil {
			return err
		}
		return c.SetDeadline(time.Now().Add(life))
	})
	return c, err
}

// browse opens a connection, asks for a page, and returns the answer with its
// body unread.
func (f *farm) browse(url string, life time.Duration) (*http.Response, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return f.dial(ctx, network, addr, life)
		},
	}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(req)
}

// browseFrom does so until a certain real server answers.
func (f *farm) browseFrom(name, url string, life time.Duration) *http.Response {
	f.t.Helper()
	for range 10 * visits {
		res, err := f.browse(url, life)
		if err != nil {
			f.t.Fatal(err)
		}
		if res.Header.Get(server.Header) == name {
			return res
		}
		res.Body.Close()
	}
	f.t.Fatalf("%s does not answer", name)
	return nil
}

// visits is enough of them to meet every server of a small weight.
const visits = 12

// whoServes visits a page some times and names those who answered, or says
// "refused" of the first connection that was: not many ICMP errors come in a
// second. Any other failure is an error.
func (f *farm) whoServes(url string) (string, error) {
	met := map[string]bool{}
	for range visits {
		res, err := f.browse(url, patience/4)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return "refused", nil
		}
		if err != nil {
			return "", err
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("status %d from %s: %w", res.StatusCode, res.Header.Get(server.Header), err)
		}
		met[res.Header.Get(server.Header)] = true
	}
	return names(met), nil
}

// whoEchoes does the same with datagrams to servers that answer with their
// names.
func (f *farm) whoEchoes(target string) (string, error) {
	met := map[string]bool{}
	for range visits {
		name, err := f.echo(target)
		if err != nil {
			return "", err
		}
		met[name] = true
	}
	return names(met), nil
}

func (f *farm) echo(target string) (string, error) {
	c, err := f.dial(context.Background(), "udp", target, patience/12)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write([]byte("who?")); err != nil {
		return "", err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	return string(answer[:n]), err
}

// replyToDatagrams lets every real server answer datagrams to a port with its
// name.
func (f *farm) replyToDatagrams(port string) {
	f.t.Helper()
	for _, s := range f.Servers {
		var l net.PacketConn
		if err := s.Namespace.Do(func() (err error) {
			l, err = net.ListenPacket("udp", net.JoinHostPort(s.Addr[topology.IPv4].String(), port))
			return err
		}); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { l.Close() })
		go func() {
			question := make([]byte, 64)
			for {
				_, from, err := l.ReadFrom(question)
				if err != nil {
					return // closed: the test is over
				}
				_, _ = l.WriteTo([]byte(s.Name), from) // lost: the client complains
			}
		}()
	}
}

func names(met map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(met)), " ")
}

// patience bounds each wait for a condition. A test that passes does not use it up, also on a machine
// with other work, where processes may get little of the CPUs for seconds.
const patience = time.Minute

// await polls until check has no complaint.
func await(t testing.TB, stage string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: after %v still: %v", stage, patience, err)
}
