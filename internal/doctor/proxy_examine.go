// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/supervise"
)

const (
	// fewFiles are enough for a thousand clients: each has a descriptor, and its server another.
	fewFiles = 4096
	// ownFiles are HAProxy's own descriptors, and those of checks.
	ownFiles = 256
)

func examineProxy(r report, p *Proxy) {
	if p == nil {
		return
	}
	before := len(*r.all)
	p.examineProgram(r)
	p.examineProcess(r)
	if p.Alarm != "" && !slices.ContainsFunc((*r.all)[before:], func(f Finding) bool { return f.Level == Problem }) {
		r.problem("imbang status", "imbang run has the alarm proxy: %s", oneLine(p.Alarm))
	}
	for _, c := range p.Certificates {
		p.examineCertificate(r, c)
	}
	for _, path := range slices.Sorted(maps.Keys(p.Unusable)) {
		r.problem("ls -lL "+path, "a file that %s names cannot be used: %s", p.File, p.Unusable[path])
	}
	for _, dir := range p.NoLogDirectories {
		r.problem("mkdir -p "+dir, "the directory %s of access logs does not exist: their lines are lost", dir)
	}
	for _, t := range p.Taken {
		examineTaken(r, t)
	}
	for _, a := range p.Absent {
		bits := a.BitLen()
		r.warn(fmt.Sprintf("ip address add %s/%d dev DEV, or a group of the section vrrp", a, bits),
			"listeners bind %s, which this host does not have, and which imbang neither adds nor moves here: no connection arrives at it", a)
	}
	p.examineFiles(r)
	if len(*r.all) == before {
		r.ok("HAProxy %s runs for %d listeners", p.Status.Version, len(p.Config.Listeners))
	}
}

func (p *Proxy) examineProgram(r report) {
	if p.Config == nil {
		return
	}
	switch {
	case p.NotInstalled:
		r.problem("apt-get install haproxy", "%s has listeners, which require HAProxy 2.6 or later: HAProxy is not installed", p.File)
	case p.Unsuitable != "":
		r.problem(p.Program+" -vv", "%s has listeners, and HAProxy cannot be used: %s", p.File, oneLine(p.Unsuitable))
	}
	for _, m := range p.Mistakes {
		r.problem("imbang check "+p.File, "%s", m)
	}
}

func (p *Proxy) examineProcess(r report) {
	s := p.Status
	switch {
	case p.StatusError != "":
		r.problem("systemctl status imbang-proxy", "%s", p.StatusError)
		return
	case s == nil:
		r.problem("systemctl enable --now imbang-proxy", "%s has listeners, and imbang proxy does not run in this network namespace", p.File)
		return
	}
	switch {
	case p.Unread:
		r.warn("imbang doctor -c FILE", "imbang proxy runs, and %s, from which its listeners would be known, cannot be read", p.File)
	case p.Config == nil:
		r.warn("systemctl disable --now imbang-proxy", "imbang proxy runs, and %s has no listeners (imbang doctor -c names another file)", p.File)
	}
	if s.Phase != supervise.Running && s.Phase != supervise.Reloading {
		text := fmt.Sprintf("HAProxy does not run (%s)", s.Phase)
		if s.LastEnd != "" {
			text += ": " + s.LastEnd
		}
		r.problem("journalctl -u imbang-proxy", "%s", oneLine(text))
	}
	if remedy := "imbang check " + p.File + " && imbang reload"; s.Refused != "" && s.HAProxy != 0 {
		r.problem(remedy, "HAProxy goes on with an earlier configuration, as it has not accepted the last one: %s", oneLine(s.Reason))
	} else if s.Refused != "" {
		r.problem(remedy, "HAProxy has not accepted the last configuration: %s", oneLine(s.Reason))
	}
	switch {
	case p.Fallback:
		r.problem(startDaemon, "the lease of imbang run was lost: HAProxy checks the servers itself, with the weights and orders of before")
	case p.NoDaemon:
		r.warn(startDaemon, "imbang run does not run: the servers of backends are not checked")
	}
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.TrimSpace(text), func(c rune) bool { return c == '\n' }), "; ")
}

func (p *Proxy) examineCertificate(r report, c carry.Pair) {
	show := "openssl x509 -noout -dates -in " + c.Path
	switch text, invalid := c.Validity(p.Now); {
	case strings.Contains(c.Error, "private key does not match"):
		r.problem("openssl pkey -pubout -in "+c.Path, "%s: the key in %s is not that of its first certificate: put certificate, chain and key of one another into it", c.Of, c.Path)
	case c.Error != "":
		r.problem("openssl x509 -noout -subject -in "+c.Path, "%s: the certificate %s cannot be used (%s): want certificate, chain and key in PEM", c.Of, c.Path, c.Error)
	case invalid:
		r.problem(show, "%s", text)
	case text != "":
		r.warn(show, "%s", text)
	}
	if c.Open {
		r.warn("chmod 600 "+c.Path, "%s: every user can read the key in %s", c.Of, c.Path)
	}
}

func examineTaken(r report, t Taken) {
	who := fmt.Sprintf("%s (process %d)", t.Program, t.Process)
	remedy := fmt.Sprintf("ps -fp %d", t.Process)
	if t.Unit != "" {
		who = fmt.Sprintf("%s (process %d, unit %s)", t.Program, t.Process, t.Unit)
		remedy = "systemctl disable --now " + t.Unit
	}
	what := "the listener cannot be started beside it"
	if t.Program == "haproxy" {
		what = "that is not imbang's HAProxy, and takes a share of the listener's connections, or keeps it from starting"
	}
	r.problem(remedy, "%s accepts connections at %s of the listener %s: %s", who, t.At, t.Listener, what)
}

func (p *Proxy) examineFiles(r report) {
	if p.Files == 0 || p.Config == nil {
		return
	}
	remedy := "systemctl edit imbang-proxy (LimitNOFILE=1048576), systemctl restart imbang-proxy"
	if wants := uint64(2*p.Config.Engine.MaxConnections + ownFiles); p.Config.Engine.MaxConnections > 0 && wants > p.Files {
		r.problem(remedy, "HAProxy may have %d files open, and proxy.max_connections of %d requires %d", p.Files, p.Config.Engine.MaxConnections, wants)
	} else if p.Files < fewFiles {
		r.warn(remedy, "HAProxy may have %d files open, for about %d clients at the same time", p.Files, p.Files/2)
	}
}
