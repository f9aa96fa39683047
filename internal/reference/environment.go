// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"strconv"

	"imbang/internal/command"
	"imbang/internal/director"
)

// statuses are the exit statuses of both programs. A test compares them with the
// constants of package command.
var statuses = map[int]string{
	command.StatusOK:            "success",
	command.StatusNotAsExpected: "the command worked; its result is not the expected one (see below)",
	command.StatusUsage:         "wrong command line",
	command.StatusFailed:        "the command failed; the message is on standard error",
}

// notAsExpected says what status 1 of a command means. A test compares the commands
// with the code.
var notAsExpected = []struct{ file, command, meaning string }{
	{"internal/cli/audit.go", "imbang audit", "there are findings, or some remain after repairs"},
	{"internal/cli/check.go", "imbang check", "the configuration is not valid"},
	{"internal/cli/conns.go", "imbang conns", "`--import`: entries were refused"},
	{"internal/cli/doctor.go", "imbang doctor", "there is a warning or a problem"},
	{"internal/cli/import.go", "imbang import", "a configuration was written, and not all was carried over"},
	{"internal/cli/migrate_receive.go", "imbang migrate receive", "lines were refused"},
	{"internal/cli/migrate_send.go", "imbang migrate send", "entries cannot be sent"},
	{"internal/cli/failover.go", "imbang failover", "a group has not moved: no other director took over"},
	{"internal/cli/peer.go", "imbang peer", "`diff`: the configurations differ; `status`: they do, or the peer is not reached; `push`: the plan was not confirmed"},
	{"internal/cli/sync_barrier.go", "imbang sync barrier", "a backup has not applied everything within the timeout"},
	{"internal/cli/why.go", "imbang why", "the packet would not be forwarded"},
	{"internal/lab/cli/bench.go", "imbang-lab bench bulk", "a download is corrupted"},
	{"internal/lab/cli/bench_changes.go", "imbang-lab bench changes", "the director did not count every packet, or the table was not restored completely"},
	{"internal/lab/cli/bench_generator.go", "imbang-lab bench generator", "another load generator made more connections per CPU second in every round"},
	{"internal/lab/cli/bench_memory.go", "imbang-lab bench memory", "counters are wrong, or connections ended before their timeout"},
	{"internal/lab/cli/bench_restore.go", "imbang-lab bench restore", "the restored table differs from the saved one"},
	{"internal/lab/cli/bench_synflood.go", "imbang-lab bench synflood", "with `syn_defence`, a request of an established connection was lost, or less than 95 % of the new connections succeeded"},
	{"internal/lab/cli/conform.go", "imbang-lab conform", "a scenario differs from its recording"},
	{"internal/lab/cli/figures.go", "imbang-lab figures", "`--check`: a page differs from the stored results, or a figure has no mark"},
	{"internal/lab/cli/run_failover_watch.go", "imbang-lab run failover watch", "addresses moved without a fault"},
	{"internal/lab/cli/simulate.go", "imbang-lab simulate", "`--validate`: a simulated figure differs from the expected one"},
}

// variables are the environment variables that the programs read. A test compares them
// with the code.
var variables = []struct{ name, programs, meaning string }{
	{director.LockTimeoutVariable, "`imbang`, `ipvsadm`", fmt.Sprintf("how long a command waits while another one has the table locked: "+
		"a duration such as `500ms` or `1m`; 0 does not wait. Default %v. `--lock-timeout` of `imbang` takes precedence", director.DefaultLockTimeout)},
	{"GOGC", "`imbang run`, `imbang vrrp`", "how much memory the garbage collector of Go lets the process use, in percent of what is in use. Default 50; of `imbang vrrp` none: it is collected when 64 MiB are used, and more with thousands of addresses"},
	{"PATH", "`imbang`, `imbang-lab`", "where the other program is looked up if it is not in the same directory, and programs of a study (nginx, haproxy, ...); a command in a node of a cluster has the cluster's programs first"},
	{"SHELL", "`imbang-lab exec`", "the shell that runs if no command is given. Default `/bin/sh`"},
	{"TMPDIR", "`imbang-lab`", "directory for temporary files. Default `/tmp`"},
}

func environmentPage() Page {
	text := title("Exit statuses and environment variables", "the constants of the code") + "## Exit statuses\n\n"
	var rows [][]string
	for s := range len(statuses) {
		rows = append(rows, []string{strconv.Itoa(s), statuses[s]})
	}
	text += table([]string{"status", "meaning"}, rows) + "\nStatus 1 of a command:\n\n"
	rows = nil
	for _, c := range notAsExpected {
		rows = append(rows, []string{fmt.Sprintf("[%s](%s)", code(c.command), commandFile(c.command)), c.meaning})
	}
	text += table([]string{"command", "meaning of 1"}, rows) + otherStatuses + "## Environment variables\n\n"
	rows = nil
	for _, v := range variables {
		rows = append(rows, []string{code(v.name), v.programs, v.meaning})
	}
	return Page{"environment.md", text + table([]string{"variable", "read by", "meaning"}, rows) + otherVariables}
}

const otherStatuses = `
Other statuses:

| command | status | meaning |
| --- | --- | --- |
| ` + "`imbang ipvsadm`, `ipvsadm`" + ` | 0 | success |
| | 1 | a listing failed, or standard output cannot be written |
| | 2 | a value of the command line is wrong |
| | 255 | the command line cannot be parsed, the table cannot be opened, or the director refused the change |
| ` + "`ipvsadm -R`" + ` | | the status of the last line |
| [` + "`imbang-lab exec`" + `](imbang-lab/exec.md) | | that of the command in the node |
| | 126 | the command cannot be executed |
| | 127 | the command does not exist |

A process that a signal ends has no exit status; a shell shows 128 and the signal's number. The first SIGINT or SIGTERM ends a command
after it has cleaned up, a second one ends it at once.

`

const otherVariables = `
The load generators that ` + "`imbang-lab`" + ` starts (httperf, ab, siege, wrk) get ` + "`LC_ALL=C` and `HOME`" + ` of a temporary directory.
All other variables are passed on unchanged.
`
