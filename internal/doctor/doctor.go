// SPDX-License-Identifier: Apache-2.0

// Package doctor checks the host's settings that a director depends on: the
// kernel, devices, routes, the table's servers. It gathers facts, and judges
// them apart from that; it changes nothing.
package doctor

import "fmt"

// Level is how much a finding matters.
type Level string

const (
	OK      Level = "ok"
	Warning Level = "warning" // it works, but worse than it could, or not for everybody
	Problem Level = "problem" // packets are lost
)

// Finding is one line of the report.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	Says    string `json:"says"`
	Remedy  string `json:"remedy,omitempty"` // a command
}

func (f Finding) String() string {
	line := fmt.Sprintf("%-8s %s: %s", f.Level, f.Subject, f.Says)
	if f.Remedy != "" {
		line += ": " + f.Remedy
	}
	return line
}

// Fine reports whether there is nothing to change.
func Fine(all []Finding) bool {
	for _, f := range all {
		if f.Level != OK {
			return false
		}
	}
	return true
}

// report collects findings of one subject.
type report struct {
	subject string
	all     *[]Finding
}

func (r report) add(l Level, remedy, format string, args ...any) {
	*r.all = append(*r.all, Finding{l, r.subject, fmt.Sprintf(format, args...), remedy})
}

func (r report) ok(format string, args ...any) { r.add(OK, "", format, args...) }

func (r report) warn(remedy, format string, args ...any) { r.add(Warning, remedy, format, args...) }

func (r report) problem(remedy, format string, args ...any) { r.add(Problem, remedy, format, args...) }

// Examine judges facts.
func Examine(f Facts) []Finding {
	var all []Finding
	of := func(subject string) report { return report{subject, &all} }
	if f.layer7Alone() {
		of("director").ok("none is loaded, and %s has listeners alone, which require none", f.Proxy.File)
	} else {
		examineKernel(of("kernel"), f)
		examineDirector(of("director"), f)
		examineForwarding(of("forwarding"), f)
		examineFirewall(of("firewall"), f)
		for _, d := range f.Devices {
			examineDevice(of(d.Name), f, d)
		}
		examineMTU(of("mtu"), f)
		examineDaemon(of("daemon"), f)
		examineServices(of("services"), f)
		examineServers(of("servers"), f)
		examineSockets(of("sockets"), f)
	}
	examineProxy(of("proxy"), f.Proxy)
	examineVRRP(of("vrrp"), f.VRRP)
	examinePair(of("pair"), f.Pair)
	examineMasters(of("pair"), f.Pair, f.VRRP)
	return all
}
