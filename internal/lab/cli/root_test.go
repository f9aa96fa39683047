// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/command"
)

// runLab runs `imbang-lab` with arguments that must be refused before
// a cluster is built, and returns the status and what it says.
func runLab(args ...string) (int, string) {
	var stdout, stderr bytes.Buffer
	status := command.Execute(context.Background(), newRootCommand(), args, strings.NewReader(""), &stdout, &stderr)
	return status, strings.TrimSpace(stdout.String() + stderr.String())
}

// caches is a study of many virtual addresses.
const caches = "../../../docs/caches.yaml"

func TestLabRefusesBadUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: bad\nrepeatz: 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "imbang-lab: name one study: l7-engines, layer7-vs-layer4, nginx-upstreams, rr-vs-lc, single-vs-cluster, thesis, or the path of a YAML file (see imbang-lab run --help)"},
		{[]string{"run", "thesiz"}, `imbang-lab: study "thesiz": there is none of that name; built in are: l7-engines, layer7-vs-layer4, nginx-upstreams, rr-vs-lc, single-vs-cluster, thesis; or give the path of a YAML file`},
		{[]string{"run", bad}, "imbang-lab: " + bad + `:2:1: unknown key "repeatz": known here are name, title, source, hypothesis, cluster, load, competitors, repeats, quick, published`},
		{[]string{"run", "thesis", "--engines", "pound"}, `imbang-lab: --engines: "pound" is unknown: want some of imbang, ipvs, nftables, nftables-flowtable, haproxy-tcp, haproxy-http, imbang-l7, nginx-stream, nginx-http, direct`},
		{[]string{"run", caches, "--engines", "imbang,direct"}, "imbang-lab: --engines: direct is reached at a server's own address, and study caches has 200 virtual ones"},
		{[]string{"run", "thesis", "--engines", ""}, "imbang-lab: --engines: want at least one, and none empty"},
		{[]string{"run", "thesis", "--schedulers", "rr,rr"}, "imbang-lab: --schedulers: one is given twice"},
		{[]string{"run", "thesis", "--rates", "0"}, "imbang-lab: --rates: 0 is out of range: want connections per second, above 0 and at most 1000000"},
		{[]string{"run", "thesis", "--repeats", "0"}, "imbang-lab: --repeats 0: want 1 or more"},
		{[]string{"run", "thesis", "--connections", "0"}, "imbang-lab: --connections 0: want 1 or more"},
		{[]string{"run", "thesis", "--arrivals", "bursty"}, `imbang-lab: --arrivals: arrivals "bursty": want constant or poisson`},
		{[]string{"run", "thesis", "--users", "5"}, "imbang-lab: --users: study thesis is an open loop, of rates"},
		{[]string{"run", "single-vs-cluster", "--rates", "5"}, "imbang-lab: --rates: study single-vs-cluster is a closed loop, of users"},
		{[]string{"run", "thesis", "--families", "ipv6"}, `imbang-lab: --families: "ipv6" is not of the study's: ipv4`},
		{[]string{"run", "thesis", "--resume", "out"}, `imbang-lab: --resume goes on with the study of its directory: leave "thesis" out`},
		{[]string{"run", "--resume", "out", "--rates", "5"}, "imbang-lab: --resume goes on by the plan of its directory: leave --rates out"},
		{[]string{"run", "thesis", "--output", "xml"}, `imbang-lab: unknown output format "xml" (text or json)`},
		{[]string{"run", "thesis", "--fast"}, "imbang-lab: unknown flag: --fast"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			if status, said := runLab(c.args...); status != command.StatusUsage || said != c.want {
				t.Errorf("status %d, %s\nwant %d, %s", status, said, command.StatusUsage, c.want)
			}
		})
	}
}

func TestLabReportNeedsARun(t *testing.T) {
	dir := t.TempDir()
	status, said := runLab("report", dir)
	if status != command.StatusFailed || !strings.Contains(said, "is "+dir+" the directory of a run?") {
		t.Errorf("status %d, %s", status, said)
	}
}

func TestLabCompareRefusals(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"compare", dir}, command.StatusUsage, "name the directories of two runs"},
		{[]string{"compare", dir, dir, dir}, command.StatusUsage, "name the directories of two runs"},
		{[]string{"compare", dir, dir}, command.StatusFailed, "is " + dir + " the directory of a run?"},
		{[]string{"compare", dir, filepath.Join(dir, "none")}, command.StatusFailed, "is " + dir + " the directory of a run?"},
		{[]string{"compare", dir, dir, "--output", "xml"}, command.StatusUsage, `unknown output format "xml"`},
	} {
		if status, said := runLab(c.args...); status != c.status || !strings.Contains(said, c.want) {
			t.Errorf("%v: status %d, %s\nwant %d, %s", c.args, status, said, c.status, c.want)
		}
	}
}

func TestLabCompletesDirectories(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"compare", ""}, "ShellCompDirectiveFilterDirs"},
		{[]string{"compare", "a", ""}, "ShellCompDirectiveFilterDirs"},
		{[]string{"compare", "a", "b", ""}, "ShellCompDirectiveNoFileComp"},
		{[]string{"report", ""}, "ShellCompDirectiveFilterDirs"},
		{[]string{"report", "a", ""}, "ShellCompDirectiveNoFileComp"},
	} {
		var stdout, stderr bytes.Buffer
		command.Execute(context.Background(), newRootCommand(), append([]string{"__complete"}, c.args...), strings.NewReader(""), &stdout, &stderr)
		if !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: %s%s\nwant %s", c.args, stdout.String(), stderr.String(), c.want)
		}
	}
}
