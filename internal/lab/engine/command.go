// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"imbang/internal/host"
)

// commandTimeout is far above what any of the commands takes; on an emulated
// machine, loading imbang takes half a minute.
const commandTimeout = 2 * time.Minute

// command runs a program in a namespace, as name in messages, and returns its
// standard output. An error carries the command and what it said.
func command(ctx context.Context, ns *host.Namespace, name, path, stdin string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	// Ctrl-C is for the lab: a half-applied command would have to be undone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := name + " " + strings.Join(args, " ")
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", said, err)
	}
	err := cmd.Wait()
	if err == nil {
		return stdout.Bytes(), nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return nil, cause
	}
	complaint := strings.TrimSpace(stderr.String())
	if ctx.Err() != nil {
		complaint = fmt.Sprintf("not done after %v: end what else keeps this machine busy", commandTimeout)
	}
	if complaint == "" {
		complaint = err.Error()
	}
	return nil, fmt.Errorf("%s: %s", said, complaint)
}

// known finds what an engine calls a scheduler.
func known(engine string, schedulers map[string]string, name string) (string, error) {
	s, ok := schedulers[name]
	if !ok {
		return "", fmt.Errorf("%s has no scheduler %q: it has %s", engine, name, strings.Join(names(schedulers), ", "))
	}
	return s, nil
}
