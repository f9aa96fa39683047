// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"imbang/internal/host"
)

// prefix begins the names of the namespaces made here for a director alone;
// those of clusters are the lab's.
const prefix = "imbang-bench"

// newRun names the namespaces of a run, and removes what runs left that were
// killed.
func newRun() (host.Run, error) {
	if os.Geteuid() != 0 {
		return host.Run{}, errors.New("not permitted: the benchmark makes network namespaces; run it as root, with sudo")
	}
	if _, err := host.Sweep(prefix); err != nil {
		return host.Run{}, err
	}
	return host.NewRun(prefix)
}

// program is this program, run in a network namespace.
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
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	start := time.Now()
	err := p.ns.Start(cmd)
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
