// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/supervise"
)

// proxy is a directory with sockets like those of HAProxy and its supervisor.
type proxy struct {
	t       *testing.T
	dir     string
	program string

	mu      sync.Mutex
	pid     int
	phase   supervise.Phase
	said    []string           // commands of the worker
	maint   map[string]bool    // servers of the worker
	answer  supervise.Response // to the next reloads
	refuses int                // reloads of a configuration with that many streams are refused
	reloads []string           // configurations that were asked for
	deaf    bool               // the worker does not reply to commands that delete servers
	silent  chan struct{}      // while it is not closed the supervisor does not reply; nil: it does
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("needs HAProxy: install the package haproxy")
	}
	p := &proxy{t: t, dir: t.TempDir(), pid: 1000, phase: supervise.Running, maint: map[string]bool{}}
	p.program = filepath.Join(p.dir, "haproxy")
	// What is not accepted is said in a file.
	script := "#!/bin/sh\nif [ \"$1\" = -c ] && [ -e " + p.dir + "/bad ]; then echo '[ALERT]    (1) : config : a file is missing.'; exit 1; fi\n" +
		"[ \"$1\" = -c ] && exit 0\nexec " + haproxy + " \"$@\"\n"
	if err := os.WriteFile(p.program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p.listen(supervise.RuntimeSocket(p.dir), p.worker)
	p.listen(supervise.MasterSocket(p.dir), p.master)
	p.listen(supervise.ControlSocket(p.dir), p.supervisor)
	return p
}

func (p *proxy) listen(path string, serve func(line string, to io.Writer)) {
	p.t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				line, _ := bufio.NewReader(c).ReadString('\n')
				serve(strings.TrimSpace(line), c)
			}()
		}
	}()
}

func (p *proxy) worker(line string, to io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line == "show servers state" {
		fmt.Fprintln(to, "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port")
		for _, name := range []string{"web/a", "web/b"} {
			be, srv, _ := strings.Cut(name, "/")
			admin := 0
			if p.maint[name] {
				admin = 1
			}
			fmt.Fprintf(to, "3 %s 1 %s 127.0.0.1 2 %d 1 8000\n", be, srv, admin)
		}
		return
	}
	if line == "show stat" {
		fmt.Fprintln(to, "# pxname,svname,status,\nweb,a,UP 1/3,\nweb,b,DOWN 1/2,\nweb,c,MAINT,\nweb,d,no check,\nweb,BACKEND,UP,")
		return
	}
	if p.deaf && strings.HasPrefix(line, "del ") {
		p.mu.Unlock()
		<-p.t.Context().Done()
		p.mu.Lock()
		return
	}
	p.said = append(p.said, line)
	var name, state string
	if n, _ := fmt.Sscanf(line, "set server %s state %s", &name, &state); n == 2 {
		p.maint[name] = state == "maint"
	}
	fmt.Fprintln(to)
}

func (p *proxy) master(line string, to io.Writer) {
	if line == "show proc" {
		p.mu.Lock()
		defer p.mu.Unlock()
		fmt.Fprintf(to, "%d master 0 [failed: 0] 0d00h00m00s 2.6\n# workers\n%d worker 0 0d00h00m00s 2.6\n# old workers\n", p.pid, p.pid+1)
		return
	}
	_, command, _ := strings.Cut(line, " ")
	p.worker(command, to)
}

func (p *proxy) supervisor(line string, to io.Writer) {
	var q supervise.Request
	_ = json.Unmarshal([]byte(line), &q)
	p.mu.Lock()
	defer p.mu.Unlock()
	if silent := p.silent; silent != nil {
		p.mu.Unlock()
		<-silent
		p.mu.Lock()
	}
	r := supervise.Response{}
	if q.Do == supervise.DoReload {
		r = p.answer
		to, _ := os.Readlink(filepath.Join(p.dir, "wanted"))
		p.reloads = append(p.reloads, to)
		if s := lastSide(p.dir); s != nil && p.refuses > 0 && s.Config.Engine.Streams == p.refuses {
			r = supervise.Response{Error: "HAProxy does not accept it", Refused: true}
		}
		if r.Error == "" {
			_ = os.Remove(filepath.Join(p.dir, "running"))
			_ = os.Symlink(to, filepath.Join(p.dir, "running"))
			clear(p.maint)
			if s := lastSide(p.dir); s != nil {
				for _, one := range s.States {
					p.maint[one.Backend+"/"+one.Server] = one.Health != l7.Up
				}
			}
		}
	}
	r.Status = supervise.Status{Phase: p.phase, HAProxy: p.pid}
	_ = json.NewEncoder(to).Encode(r)
}

// keeper is one that does nothing by itself.
func (p *proxy) keeper() *Keeper {
	return &Keeper{Options: Options{Dir: p.dir, Program: p.program, Log: slog.New(slog.DiscardHandler)}, wake: make(chan struct{}, 1), certificates: newCertificates(p.dir)}
}

// answers has reloads end so from now on.
func (p *proxy) answers(r supervise.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = r
}

// took are the commands of the worker, and how many reloads there were, since the last time.
func (p *proxy) took() (commands []string, reloads int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	commands, reloads = p.said, len(p.reloads)
	p.said, p.reloads = nil, nil
	return commands, reloads
}

// expect fails unless the worker had a command.
func (p *proxy) expect(what, command string) {
	p.t.Helper()
	if said, _ := p.took(); !slices.Contains(said, command) {
		p.t.Errorf("%s: no command %q among %q", what, command, said)
	}
}

// web is a configuration with a limit, so that two of them differ, and servers.
func web(streams int, servers ...string) *l7.Config {
	c := &l7.Config{Engine: l7.Engine{Streams: streams}, Backends: []l7.Backend{{Name: "web"}}}
	for i, name := range servers {
		c.Backends[0].Servers = append(c.Backends[0].Servers, l7.Server{Name: name, Weight: 1, Address: addr(i)})
	}
	return c
}

// of is what is wanted, with servers that are down.
func of(c *l7.Config, down ...string) *Wanted {
	w := &Wanted{Config: c, States: l7.States{}}
	for _, s := range c.Backends[0].Servers {
		state := l7.State{Weight: 1}
		if slices.Contains(down, s.Name) {
			state.Health = l7.Down
		}
		w.States[l7.ServerID{Backend: "web", Server: s.Name}] = state
	}
	return w
}

func (w *Wanted) id(server string) l7.ServerID { return l7.ServerID{Backend: "web", Server: server} }

// step has a keeper carry out what is wanted.
func step(t *testing.T, k *Keeper, w *Wanted) error {
	k.Set(w)
	return k.step(t.Context(), w)
}
