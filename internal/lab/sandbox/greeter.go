// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"imbang/internal/host"
)

// GreetVerb is the verb of imbang-lab that calls Greet.
const GreetVerb = "greet"

// patience is how long a web server may take until it answers.
const patience = 30 * time.Second

// startServer starts the web server of a node. It has a session of its own, so
// that it survives the terminal of this command; it ends with its namespace.
func (c *Cluster) startServer(ctx context.Context, n *Node, lab string) (err error) {
	ns, err := host.OpenNamespace(n.Namespace)
	if err != nil {
		return err
	}
	defer ns.Release()
	path := filepath.Join(dir(c.Spec.Name), n.Name+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(lab, GreetVerb, n.Name)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Start(cmd); err != nil {
		return fmt.Errorf("start the web server of %s: %w", n.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill() // it may have ended
		}
	}()
	target := netip.AddrPortFrom(n.Addresses[0], Port)
	for deadline := time.Now().Add(patience); ; {
		said, err := get(ctx, ns, target)
		if err == nil && said == n.Name {
			n.PID, n.Running = cmd.Process.Pid, true
			return nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(path)
			return fmt.Errorf("the web server of %s ended: %s", n.Name, strings.TrimSpace(string(text)))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the web server of %s does not answer at %s: %q, %w", n.Name, target, said, err)
		}
	}
}

// get makes one request from a namespace and returns the reply without the
// line feed.
func get(ctx context.Context, from *host.Namespace, target netip.AddrPort) (string, error) {
	client := http.Client{
		Timeout: time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
				err = from.Do(func() (err error) {
					conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
					return err
				})
				return conn, err
			},
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.String()+"/", nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return strings.TrimSpace(string(b)), err
}
