// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/studies"
)

func TestLabSimulateRefusesBadUsage(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "bare.yaml")
	if err := os.WriteFile(bare, []byte(strings.NewReplacer("kind: model, count: 3, page: 375 B, law: constant, service: 8 ms, concurrency: 4", "kind: nginx, count: 3, page: 375 B",
		"name: thesis", "name: bare").Replace(thesis(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{bare, "imbang-lab: study bare does not say how fast a server is: say it, such as --service 10ms --concurrency 32, which is 3200 connections/s for each server"},
		{"--schedulers rr,lq", `imbang-lab: --schedulers: "lq" is unknown: want some of dh, fo, lblc, lblcr, lc, mh, nq, ovf, rr, sed, sh, twos, wlc, wrr`},
		{"--schedulers rr,rr", "imbang-lab: --schedulers, --rates, --rho: want each once"},
		{"--law weibull", `imbang-lab: --law: "weibull" is no distribution of service times: want one of constant, exponential, pareto, lognormal`},
		{"--arrivals often", `imbang-lab: --arrivals: arrivals "often": want constant or poisson`},
		{"--weights 1,heavy", `imbang-lab: --weights: "heavy": want whole numbers from 0 to 65535, or speed`},
		{"--weights 0", "imbang-lab: all weights are 0, so no server takes connections: give one a weight of 1 or more"},
		{"--speeds 1,0", "imbang-lab: server 1: speed 0, weight 1: want a speed above 0 and a weight of 0 or more"},
		{"--servers 0", "imbang-lab: --servers 0: want 1 to 65536"},
		{"--service 0s", "imbang-lab: --service and --concurrency: want more than 0"},
		{"--warmup 1", "imbang-lab: warm-up 1: want a share of the connections from 0 to below 1"},
		{"--clients 0", "imbang-lab: clients 0: want 1 to 4194304"},
		{"--rho 0", "imbang-lab: rate 0: want connections per second, above 0 and at most 100000000"},
		{"--output xml", `imbang-lab: unknown output format "xml" (text or json)`},
	} {
		t.Run(c.args, func(t *testing.T) {
			status, said := runLab(append([]string{"simulate"}, strings.Fields(c.args)...)...)
			if status != command.StatusUsage || said != c.want {
				t.Errorf("status %d, %s\nwant %d, %s", status, said, command.StatusUsage, c.want)
			}
		})
	}
}

// thesis is the text of the study of that name.
func thesis(t *testing.T) string {
	t.Helper()
	text, ok := studies.Read("thesis")
	if !ok {
		t.Fatal("there is no study thesis")
	}
	return string(text)
}

// A study's fractions are of what the simulated servers can serve.
func TestLabSimulateTakesFractionsFromAStudy(t *testing.T) {
	var f simulation
	cmd := &cobra.Command{}
	f.farmFlags(cmd)
	f.loadFlags(cmd)
	f.runFlags(cmd)
	if err := f.study(cmd, "thesis"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.rhos, []float64{0.3, 0.6, 0.9}) || len(f.config.Rates) > 0 {
		t.Errorf("fractions %v, rates %v; want those of the study and none", f.rhos, f.config.Rates)
	}
	if want := int(1.2 * 0.9 * 1500); f.config.Connections != want {
		t.Errorf("%d connections, want the %d of a cell at the highest rate", f.config.Connections, want)
	}
}

// What a study says of virtual addresses is simulated, where no flag says
// otherwise.
func TestLabSimulateTakesAddressesFromAStudy(t *testing.T) {
	for _, c := range []struct {
		study, args  string
		destinations int
		zipf         float64
	}{
		{caches, "", 200, 0.8},
		{caches, "--destinations 5000 --zipf 1.2", 5000, 1.2},
		{"thesis", "--service 10ms", 1, 0.8},
		{"thesis", "--service 10ms --destinations 50", 50, 0.8},
	} {
		var f simulation
		cmd := &cobra.Command{}
		f.farmFlags(cmd)
		f.loadFlags(cmd)
		f.runFlags(cmd)
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		if err := f.study(cmd, c.study); err != nil {
			t.Fatal(err)
		}
		if f.config.Backlog != -1 {
			t.Errorf("%s: room for %d to wait, want any number: no server of it says how many", c.study, f.config.Backlog)
		}
		if f.config.Destinations != c.destinations || f.config.DestinationZipf != c.zipf {
			t.Errorf("%s %s: %d destinations, exponent %g; want %d, %g",
				c.study, c.args, f.config.Destinations, f.config.DestinationZipf, c.destinations, c.zipf)
		}
	}
}
