// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	messages "imbang/internal/daemon/sync/kernel"
	"imbang/internal/host"
	"imbang/internal/lab/conform"
	"imbang/internal/testenv"
)

var captureDir = flag.String("capture", "", "TestCapture writes what Linux sent to this directory")

// kinds is a table with a service of each forwarding method, family and protocol.
var kinds = conform.Scenario{
	Setup: []string{
		"-A -t [fd00:20::1]:80 -s rr", "-a -t [fd00:20::1]:80 -r [fd00:16::2]:8080 -m",
		"-A -t [fd00:20::2]:80 -s rr -p 360 -M 64", "-a -t [fd00:20::2]:80 -r [fd00:16::2]:8080 -m",
		"-A -u [fd00:20::3]:53 -s rr", "-a -u [fd00:20::3]:53 -r [fd00:16::2]:53 -g",
		"-A -f 6 -6 -s rr -p 50", "-a -f 6 -6 -r [fd00:16::2]:0 -m",
		"-A -t 10.20.0.3:80 -s rr", "-a -t 10.20.0.3:80 -r 172.16.0.2:80 -g",
		"-A -t 10.20.0.4:80 -s rr -p 360", "-a -t 10.20.0.4:80 -r 172.16.0.2:80 -g",
		"-A -t 10.20.0.5:80 -s rr", "-a -t 10.20.0.5:80 -r 172.16.0.2:80 -i",
		"-A -t 10.20.0.6:80 -s rr -p 360", "-a -t 10.20.0.6:80 -r 172.16.0.2:80 -i",
		"-A -u 10.20.0.3:53 -s rr", "-a -u 10.20.0.3:53 -r 172.16.0.2:53 -g",
		"-A -t 10.20.0.9:80 -s rr", "-a -t 10.20.0.9:80 -r 10.20.0.9:80 -m",
		"-A --sctp-service 10.20.0.7:80 -s rr", "-a --sctp-service 10.20.0.7:80 -r 172.16.0.2:80 -m",
		"-A --sctp-service 10.20.0.7:81 -s rr -p 360", "-a --sctp-service 10.20.0.7:81 -r 172.16.0.2:81 -g",
	},
	Fwmark: [][]any{{float64(6), "-d fd00:20::6/128"}},
	Listen: []int{8080},
	Ops:    [][]json.RawMessage{words("open", "x", "10.10.0.9", 1, "10.20.0.1", 1), words("open", "x", "fd00:10::9", 1, "fd00:20::1", 1)},
}

func words(all ...any) (op []json.RawMessage) {
	for _, w := range all {
		b, _ := json.Marshal(w)
		op = append(op, b)
	}
	return op
}

// TestCapture records what Linux sends for each kind of connection: the data that
// internal/daemon/sync/kernel is tested with.
func TestCapture(t *testing.T) {
	if *captureDir == "" {
		t.Skip("needs -capture")
	}
	l, err := newLane(interrupted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	if err := l.ip("addr add 10.30.0.250/24 dev sync1\n"); err != nil {
		t.Fatal(err)
	}
	for _, version := range []int{1, 0} {
		l.played++
		g, err := l.kernelGroup()
		if g != nil {
			t.Cleanup(g.end)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.guest.Must(l.ctx, "modprobe ip_vs_ftp"); err != nil {
			t.Fatal(err)
		}
		if err := g.start(kinds, variant{version, "0 1"}); err != nil {
			t.Fatal(err)
		}
		// Not of the scenario: the player would serve the port.
		for _, line := range []string{"-A -t 10.20.0.8:21 -s rr", "-a -t 10.20.0.8:21 -r 172.16.0.2:21 -m"} {
			if status, text := g.master.Ipvsadm(line); status != 0 {
				t.Fatal(text)
			}
		}
		sent := listen(t, l.bridge)
		send(t, g)
		time.Sleep(flush)
		table, err := g.master.table()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("version %d: %v", version, table.Connections)
		var text []byte
		for done := false; !done; {
			select {
			case m := <-sent:
				text = append(hex.AppendEncode(text, m), '\n')
				read, err := messages.Read(m)
				t.Logf("%d bytes, %v", len(m), err)
				for _, r := range read.Records {
					t.Logf("flags %#x %+v %+v", r.Flags, r, r.Sequences)
				}
			default:
				done = true
			}
		}
		if err := os.WriteFile(filepath.Join(*captureDir, fmt.Sprintf("linux-6.1.176-version-%d-kinds.hex", version)), text, 0o644); err != nil {
			t.Fatal(err)
		}
		g.end()
	}
}

// listen collects messages on the bridge for synchronization.
func listen(t *testing.T, ns *host.Namespace) <-chan []byte {
	t.Helper()
	var c *net.UDPConn
	err := ns.Do(func() error {
		dev, err := net.InterfaceByName("sync1")
		if err != nil {
			return err
		}
		c, err = net.ListenMulticastUDP("udp4", dev, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 81), Port: 8848})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	received := make(chan []byte, 1000)
	go func() {
		for {
			b := make([]byte, 1<<16)
			n, err := c.Read(b)
			if err != nil {
				return
			}
			received <- b[:n]
		}
	}()
	return received
}

// Types of SCTP's chunks (RFC 9260, 3.2) that testenv does not name.
const (
	cookieEcho = 10
	cookieAck  = 11
)

// send plays the clients, and the servers that this machine's kernel cannot be.
func send(t *testing.T, g *group) {
	t.Helper()
	frame := func(ns *host.Namespace, p testenv.Packet) {
		t.Helper()
		if err := emit(ns, p.MACs(conform.HostsMAC, conform.DirectorMAC).Frame()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, vip := range []string{"fd00:20::1", "fd00:20::2"} {
		for port := 41001; port <= 41002; port++ {
			name := fmt.Sprint(vip, port)
			got, err := g.Do(words("open", name, "fd00:10::9", port, vip, 80), json.RawMessage(`"[fd00:16::2]:8080"`))
			if err != nil || got != "[fd00:16::2]:8080" {
				t.Fatal(got, err)
			}
			if port == 41002 {
				if got, err := g.Do(words("close", name), nil); got != nil || err != nil {
					t.Fatal(got, err)
				}
			}
		}
	}
	for range 2 {
		frame(g.clients, testenv.UDP("[fd00:10::9]:41003", "[fd00:20::3]:53", "x"))
		frame(g.clients, testenv.UDP("10.10.0.9:41003", "10.20.0.3:53", "x"))
		frame(g.clients, testenv.UDP("[fd00:10::9]:41003", "[fd00:20::6]:99", "x"))
	}
	for i, vip := range []string{"10.20.0.3:80", "10.20.0.4:80", "10.20.0.5:80", "10.20.0.6:80", "10.20.0.9:80"} {
		client := fmt.Sprintf("10.10.0.9:4200%d", i)
		for _, flags := range []string{"S", "A", "PA"} {
			frame(g.clients, testenv.TCP(client, vip, flags))
		}
	}
	frame(g.clients, testenv.TCP("10.10.0.9:42000", "10.20.0.3:80", "FA"))
	client, vip, server := "10.10.0.9:43000", "10.20.0.7:80", "172.16.0.2:80"
	frame(g.clients, testenv.SCTP(client, vip, testenv.SCTPInit))
	frame(g.servers, testenv.SCTP(server, client, testenv.SCTPInitAck))
	frame(g.clients, testenv.SCTP(client, vip, cookieEcho))
	frame(g.servers, testenv.SCTP(server, client, cookieAck))
	frame(g.clients, testenv.SCTP(client, vip, testenv.SCTPData))
	for _, chunk := range []uint8{testenv.SCTPInit, cookieEcho, testenv.SCTPData} {
		frame(g.clients, testenv.SCTP("10.10.0.9:43001", "10.20.0.7:81", chunk))
	}
	transfer(t, g)
}

// transfer opens a passive FTP connection, whose end the server names.
func transfer(t *testing.T, g *group) {
	t.Helper()
	var control, data net.Listener
	err := g.servers.Do(func() (err error) {
		if control, err = net.Listen("tcp", "172.16.0.2:21"); err != nil {
			return err
		}
		data, err = net.Listen("tcp", "172.16.0.2:30000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	defer data.Close()
	go func() {
		c, err := control.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "220 ready\r\n")
		for lines := bufio.NewScanner(c); lines.Scan(); {
			fmt.Fprint(c, "227 Entering Passive Mode (172,16,0,2,117,48).\r\n")
		}
	}()
	dial := func(port int, to string) net.Conn {
		t.Helper()
		var c net.Conn
		err := g.clients.Do(func() (err error) {
			d := net.Dialer{Timeout: 2 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 10, 0, 9), Port: port}}
			c, err = d.Dial("tcp", to)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial(44000, "10.20.0.8:21")
	defer c.Close()
	lines := bufio.NewReader(c)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "PASV\r\n")
	reply, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Log(reply)
	time.Sleep(50 * time.Millisecond)
	d := dial(44001, "10.20.0.8:30000")
	defer d.Close()
	fmt.Fprint(d, "data")
	fmt.Fprint(c, "NOOP\r\n")
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// emit sends a frame from a namespace's eth0.
func emit(ns *host.Namespace, frame []byte) error {
	return ns.Do(func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.Sendto(s, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index})
	})
}
