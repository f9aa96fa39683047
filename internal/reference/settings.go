// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"strings"

	"imbang/internal/director"
	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

func settingsPage() Page {
	text := title("Settings", "the settings' table") + "`imbang settings` lists the settings of the director of this network " +
		"namespace; `imbang settings NAME=VALUE ...` changes them, all or none. They hold until the director is removed. A " +
		"prefix `net.ipv4.vs.` may stand before a name.\n\n"
	var rows [][]string
	for _, s := range director.DescribeSettings() {
		to := fmt.Sprintf("0 to %d", s.Max)
		if s.Defence {
			to = "0 or never, 1 or auto, 3 or always"
		}
		linux := "yes"
		if !s.Linux {
			linux = "no"
		}
		rows = append(rows, []string{code(s.Name), fmt.Sprint(s.Default), to, linux, s.Help})
	}
	return Page{"settings.md", text + table([]string{"setting", "default", "range", "Linux has it", "meaning"}, rows) +
		"\n[SYN floods and defence modes](../how-to/syn-floods.md) and [problems of IPVS that a setting solves]" +
		"(../how-to/drain.md) show their use; [differences from Linux](../explanation/differences.md) names what they change.\n"}
}

func auditPage() Page {
	text := title("Findings of imbang audit", "the kinds of findings") + "[`imbang audit`](imbang/audit.md) names one of these " +
		"kinds for each finding. [Audit the tables](../how-to/audit.md) shows its use.\n\n"
	var rows [][]string
	for _, k := range director.AuditKinds() {
		repair := k.Repair()
		if repair == "" {
			repair = "no"
		}
		rows = append(rows, []string{code(k.String()), k.Text(), repair})
	}
	return Page{"audit.md", text + table([]string{"kind", "what is wrong", "`--repair`"}, rows)}
}

// rules say what each scheduler chooses. A test compares the names with the list of
// schedulers.
var rules = map[string]string{
	"rr":    "servers in turn",
	"wrr":   "servers in turn, as often as their weights say",
	"lc":    "the server with the fewest connections",
	"wlc":   "the server with the fewest connections in proportion to its weight",
	"lblc":  "the server that got the destination address before; wlc if it is overloaded",
	"lblcr": "one of the servers that got the destination address before; one is added if all are overloaded",
	"dh":    "by a hash of the destination address",
	"sh":    "by a hash of the client's address",
	"sed":   "the server with the shortest expected delay: active connections and one more, in proportion to its weight",
	"nq":    "an idle server; sed if there is none",
	"fo":    "the available server with the greatest weight",
	"ovf":   "the server with the greatest weight that has no more active connections than its weight",
	"mh":    "by a Maglev hash of the client's address",
	"twos":  "the less loaded of two servers that are drawn at random by weight",
}

func ipvsadmPage() Page {
	var rows [][]string
	for _, s := range model.Schedulers() {
		var flags []string
		for _, f := range s.Flags {
			flags = append(flags, code(f.Name))
		}
		rows = append(rows, []string{code(s.Name), rules[s.Name], strings.Join(flags, ", ")})
	}
	return Page{"ipvsadm.md", title("ipvsadm", "the command's help and the list of schedulers") +
		"`imbang ipvsadm`, or a link to `imbang` named `ipvsadm` or `imbang-ipvsadm`, has the command line of ipvsadm 1.31. " +
		"Beyond the help below the scheduler `twos` can be chosen. `--start-daemon` starts a process ([`imbang sync`](imbang/sync.md)), where Linux starts a thread of the kernel. The help says that the default of `--syncid` is 255: ipvsadm 1.31 sends 0, and so does imbang.\n\n" +
		fence("text", ipvsadm.Usage()) + "## Schedulers\n\n" +
		table([]string{"scheduler", "chooses", "flags of `-b`"}, rows) + messages}
}

// messages are those that need an explanation.
const messages = `
## Messages

ipvsadm prints fixed messages for the kernel's errors, and imbang prints the same ones.

| message | meaning with imbang |
| --- | --- |
| ` + "`Memory allocation problem`" + ` | the table has no room for another service or server: save it (` + "`ipvsadm -Sn`" + `), ` + "`imbang detach`" + `, ` + "`imbang attach`" + ` with a greater ` + "`--max-services` or `--max-servers`" + `, restore it (` + "`ipvsadm -R`" + `) |
| ` + "`Service not defined`, `No such service`" + ` | the service was not added |
| ` + "`No such destination`" + ` | the server is not in the service |
| ` + "`Daemon has already run`" + ` | the synchronization role runs, in a process of ` + "`imbang sync`" + ` or in ` + "`imbang run`" + `: ` + "`imbang status`" + ` shows which |
| ` + "`No daemon is running`" + ` | the synchronization role does not run |
| ` + "`No such device`" + ` | of ` + "`--start-daemon`" + `: ` + "`--mcast-interface`" + ` is missing, or there is no such device |
| ` + "`Network is unreachable`" + ` | of ` + "`--start-daemon master`" + `: the device is down, or has no address or no route to the group |
`
