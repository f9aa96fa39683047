// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/place"
	"imbang/internal/host"
)

// proxyPatience is how long HAProxy, which checks a configuration, and its supervisor may take.
const proxyPatience = 20 * time.Second

// askProxy asks the process imbang proxy.
func askProxy() (*Proxy, error) {
	dir, err := place.ProxyDir()
	if err != nil {
		return nil, err
	}
	p := &Proxy{dir: dir}
	ctx, cancel := context.WithTimeout(context.Background(), proxyPatience)
	defer cancel()
	switch s, err := supervise.Ask(ctx, dir, supervise.DoStatus); {
	case err == nil:
		p.Status = &s
	case !errors.Is(err, supervise.ErrNone):
		p.StatusError = err.Error()
	}
	return p, nil
}

// file is the configuration of the process; "": not known.
func (p *Proxy) file() string {
	if p.Status == nil {
		return ""
	}
	return fileOf(p.Status.Supervisor, p.Status.Config)
}

// gatherProxy adds to the reply of a process what there is of layer 7 by a configuration, which is that of VRRP if
// no other is known. It is nil if there is neither a listener nor a process. Mistakes of a configuration are
// gatherVRRP's to tell.
func gatherProxy(p *Proxy, file string, d daemon, v *VRRP) *Proxy {
	p.File, p.Now, p.NoDaemon, p.Alarm = file, time.Now(), !d.runs(), d.proxyAlarm()
	if p.File == "" && v != nil {
		p.File = v.File
	}
	p.File = cmp.Or(p.File, config.DefaultFile)
	ctx, cancel := context.WithTimeout(context.Background(), proxyPatience)
	defer cancel()
	c, err := config.Load(p.File)
	p.Unread = err != nil
	if err == nil && c.Layer7 != nil {
		p.Config = &c.Layer7.Config
		p.Alone = !c.NamesDirector()
		p.gatherConfig(ctx, c, v)
	}
	if p.Config == nil && p.Status == nil && p.StatusError == "" {
		return nil
	}
	p.Fallback = p.Status != nil && filepath.Base(p.Status.Configuration) == supervise.Fallback
	if p.Status != nil && p.Status.HAProxy != 0 {
		p.Files = openFiles(p.Status.HAProxy)
	}
	return p
}

func (p *Proxy) gatherConfig(ctx context.Context, c *config.Config, v *VRRP) {
	p.Certificates = carry.Pairs(p.Config)
	p.NoLogDirectories = carry.NoLogDirectories(p.Config)
	p.Unusable = map[string]string{}
	for path, err := range carry.Unusable(p.Config) {
		if !slices.ContainsFunc(p.Certificates, func(c carry.Pair) bool { return c.Path == path && c.Error != "" }) {
			p.Unusable[path] = err.Error()
		}
	}
	if path, err := exec.LookPath("haproxy"); err != nil {
		p.NotInstalled = true
	} else if version, err := haproxy.Detect(ctx, path); err != nil {
		p.Unsuitable, p.Program = err.Error(), path
	} else {
		p.Version = version.Text
		if _, err := carry.Check(ctx, p.dir, "", p.Config); err != nil {
			p.Mistakes = p.others(strings.Split(err.Error(), "\n"))
		}
	}
	p.Taken = takenAddresses(p.Config, func(pid int) bool {
		// The supervisor holds the sockets while HAProxy is started again.
		return supervise.Owns(pid, p.dir) || p.Status != nil && pid == p.Status.Supervisor
	})
	for i := range p.Config.Listeners {
		for _, at := range p.Config.Listeners[i].Bind {
			a := at.Addr()
			if a.IsUnspecified() || slices.Contains(p.Absent, a) || v.moves(a) || adds(c, a) {
				continue
			}
			if r, err := host.ReachOf(a); err == nil && r.Route != host.LocalRoute {
				p.Absent = append(p.Absent, a)
			}
		}
	}
}

// others are mistakes that are not of a file, which is told by itself.
func (p *Proxy) others(mistakes []string) []string {
	return slices.DeleteFunc(mistakes, func(m string) bool {
		for path := range p.Unusable {
			if strings.Contains(m, path) {
				return true
			}
		}
		return slices.ContainsFunc(p.Certificates, func(c carry.Pair) bool { return c.Error != "" && strings.Contains(m, c.Path) })
	})
}

// adds reports whether imbang run adds an address.
func adds(c *config.Config, a netip.Addr) bool {
	return c.Director != nil && slices.ContainsFunc(c.Director.Addresses, func(o config.Address) bool { return o.Prefix.Addr() == a })
}

// openFiles is the limit of a process.
func openFiles(pid int) uint64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	l, err := p.Limits()
	if err != nil {
		return 0
	}
	return l.OpenFiles
}
