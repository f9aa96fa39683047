// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// serversEnv has the test program be the real servers of migrants until its standard input
// ends: a process of their own, since each connection needs a file in both.
const serversEnv = "IMBANG_PEER_SERVERS"

// beServers listens on the servers' addresses, and says on standard output when it does.
func beServers() int {
	if err := listenAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func listenAll() error {
	for _, address := range []string{"172.16.0.2", "172.16.0.3", "172.16.0.4", "[fd00:16::2]", "[fd00:16::3]"} {
		for port, serve := range map[string]func(net.Conn){"80": echo, "443": echo, "7000": echo, "8080": echo, "90": upload} {
			listener, err := net.Listen("tcp", address+":"+port)
			if err != nil {
				return err
			}
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go serve(conn)
				}
			}()
		}
		for _, port := range []string{"53", "5060"} {
			conn, err := net.ListenPacket("udp", address+":"+port)
			if err != nil {
				return err
			}
			go answer(conn)
		}
	}
	return nil
}

// echo answers lines with the server's address and the line.
func echo(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(conn, "%s %s", conn.LocalAddr(), line); err != nil {
			return
		}
	}
}

// answer is echo for datagrams, of which SIP has the line in a header.
func answer(conn net.PacketConn) {
	b := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		line := string(b[:n])
		if at := strings.Index(line, "Number: "); at >= 0 {
			line, _, _ = strings.Cut(line[at+len("Number: "):], "\r")
			line += "\n"
		}
		_, _ = conn.WriteTo(fmt.Appendf(nil, "%s %s", conn.LocalAddr(), line), from)
	}
}

// streamByte is the byte of a download at a place.
func streamByte(n int64) byte { return byte(n*7 + n>>8) }

// upload sends bytes until its client ends: 100 KB/s.
func upload(conn net.Conn) {
	defer conn.Close()
	b := make([]byte, 2000)
	for at := int64(0); ; time.Sleep(20 * time.Millisecond) {
		for i := range b {
			b[i] = streamByte(at)
			at++
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}
