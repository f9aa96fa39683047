// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// prefix begins the names of the namespaces made here for a director alone;
// those of clusters are the lab's.
const prefix = "imbang-bench"

// newRun names the namespaces and files of a run, and removes what runs left
// that were killed.
func newRun() (host.Run, error) { return newRunOf(prefix) }

// newLabRun is newRun for a benchmark that has a cluster of the lab.
func newLabRun() (host.Run, error) { return newRunOf(topology.Prefix) }

func newRunOf(prefix string) (host.Run, error) {
	if os.Geteuid() != 0 {
		return host.Run{}, errors.New("not permitted: the benchmark makes network namespaces; run it as root, with sudo")
	}
	if _, err := host.Sweep(prefix); err != nil {
		return host.Run{}, err
	}
	if _, err := host.SweepFiles(os.TempDir(), prefix); err != nil {
		return host.Run{}, err
	}
	return host.NewRun(prefix)
}

// program is imbang, run in a network namespace.
type program struct {
	ns         *host.Namespace
	executable string
}

// duration is what a command took.
type duration struct{ wall, cpu time.Duration }

// run runs it.
func (p program) run(ctx context.Context, stdin string, args ...string) (string, duration, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.executable, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	var start time.Time
	err := p.ns.Do(func() error {
		start = time.Now() // in the namespace: the way there is none of the command's
		return cmd.Start()
	})
	if err == nil {
		err = cmd.Wait()
	}
	took := duration{wall: time.Since(start)}
	if err == nil && stderr.Len() > 0 {
		err = errors.New("it complains")
	}
	if err != nil {
		message, _, _ := strings.Cut(stderr.String(), "\n")
		return "", took, fmt.Errorf("imbang %s: %w: %s", strings.Join(args, " "), err, message)
	}
	took.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return stdout.String(), took, nil
}

// listed adds up the last n columns of the servers in a listing.
func (p program) listed(ctx context.Context, options string, n int) ([]uint64, error) {
	out, _, err := p.run(ctx, "", append([]string{"ipvsadm"}, strings.Fields(options)...)...)
	if err != nil {
		return nil, err
	}
	sums := make([]uint64, n)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) <= n || fields[0] != "->" || fields[1] == "RemoteAddress:Port" {
			continue
		}
		for i, f := range fields[len(fields)-n:] {
			v, err := strconv.ParseUint(f, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("listing %q: %w", line, err)
			}
			sums[i] += v
		}
	}
	return sums, nil
}
