// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/topology"
)

// namespaced is a director in a network namespace: imbang's data plane.
type namespaced struct {
	files
	variant    Variant
	setting    Setting
	ns         *host.Namespace
	imbang     string // paths of the programs
	keepalived string
	upgrades   *upgrades // nil: to the same program
	upgraded   bool

	daemon, vrrp *process.Process
}

// backupState is what keepalived says when it follows another director.
const backupState = "BACKUP STATE"

// commandTimeout is far above what a command takes.
const commandTimeout = time.Minute

// configure writes the director's files, and removes those of an earlier trial.
func (d *namespaced) configure(c configuration) error {
	c.director, d.variant, d.setting = d.number, c.variant, c.setting
	if err := d.undoUpgrade(); err != nil {
		return err
	}
	if err := d.renew(); err != nil {
		return err
	}
	if err := os.WriteFile(d.file("imbang.yaml"), []byte(c.imbang()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(d.file("keepalived.conf"), []byte(c.keepalived()), 0o600)
}

// begin starts a program, whose messages go to the end of a log.
func (d *namespaced) begin(log string, argv ...string) (*process.Process, error) {
	f, err := os.OpenFile(d.file(log), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	return process.Start(d.ns, cmd)
}

// startDaemon starts the data plane with its daemon.
func (d *namespaced) startDaemon(context.Context) (err error) {
	d.daemon, err = d.begin("imbang.log", d.imbang, "run", "-c", d.file("imbang.yaml"))
	return err
}

func (d *namespaced) startVRRP(context.Context) (err error) {
	if d.variant.Process == keepalivedProcess {
		// The files of a killed one would keep the next from starting.
		for _, pid := range []string{"pid", "vrrp.pid"} {
			_ = os.Remove(d.file(pid))
		}
		d.vrrp, err = d.begin("vrrp.log", d.keepalived, "--dont-fork", "--log-console", "--log-detail", "--vrrp",
			"--use-file", d.file("keepalived.conf"), "--pid", d.file("pid"), "--vrrp_pid", d.file("vrrp.pid"))
		return err
	}
	d.vrrp, err = d.begin("vrrp.log", d.imbang, "vrrp", "-c", d.file("imbang.yaml"))
	return err
}

func (d *namespaced) start(ctx context.Context) error {
	return errors.Join(d.startDaemon(ctx), d.startVRRP(ctx))
}

func (d *namespaced) killVRRP(context.Context) error { return d.vrrp.Signal(syscall.SIGKILL) }

func (d *namespaced) resign(context.Context) error { return d.vrrp.Signal(syscall.SIGTERM) }

// loseLink has nothing to do: its device has lost the carrier.
func (d *namespaced) loseLink(context.Context) error { return nil }

func (d *namespaced) pids() []int { return host.PIDsInside(d.ns.Name()) }

func (d *namespaced) killAll() error {
	err := errors.Join(d.vrrp.Signal(syscall.SIGKILL), d.daemon.Signal(syscall.SIGKILL))
	for _, pid := range d.pids() { // in groups of their own
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return err
}

func (d *namespaced) handOver(ctx context.Context) error {
	if d.variant.Process == keepalivedProcess {
		return errNoMove
	}
	_, err := d.command(ctx, "failover")
	return err
}

func (d *namespaced) killDaemon() error { return d.daemon.Signal(syscall.SIGKILL) }

// command runs imbang in the director's namespace.
func (d *namespaced) command(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, d.imbang, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the lab
	if err := d.ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("imbang %s: %w", strings.Join(args, " "), err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("imbang %s: %s: %w", strings.Join(args, " "), strings.TrimSpace(stderr.String()), err)
	}
	return stdout.Bytes(), nil
}

func (d *namespaced) synced(ctx context.Context) bool {
	out, err := d.command(ctx, "status", "--output", "json")
	if err != nil {
		return false
	}
	var s struct {
		Services uint32 `json:"services"`
		Daemon   *struct {
			Replication *struct {
				Synced bool `json:"synced"`
			} `json:"replication"`
		} `json:"daemon"`
	}
	if json.Unmarshal(out, &s) != nil || s.Services == 0 || s.Daemon == nil {
		return false
	}
	return d.variant.NoSync || s.Daemon.Replication != nil && s.Daemon.Replication.Synced
}

// vrrpStatus is the part of `imbang vrrp status --output json` that is needed here.
type vrrpStatus struct {
	LateMS      float64 `json:"late_ms"`
	NotRealTime string  `json:"not_real_time"`
	Groups      []struct {
		Name   string `json:"name"`
		State  string `json:"state"`
		Counts struct {
			Became       uint64 `json:"became"`
			Left         uint64 `json:"left"`
			OtherMasters uint64 `json:"other_masters"`
			Stalls       uint64 `json:"stalls"`
		} `json:"counts"`
	} `json:"groups"`
}

func (d *namespaced) vrrpStatus(ctx context.Context) (s vrrpStatus, err error) {
	out, err := d.command(ctx, "vrrp", "status", "--output", "json")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("imbang vrrp status --output json: %w", err)
	}
	return s, nil
}

func (d *namespaced) isBackup(ctx context.Context) bool {
	if d.variant.Process == keepalivedProcess {
		return d.isSaid("vrrp.log", backupState)
	}
	s, err := d.vrrpStatus(ctx)
	return err == nil && len(s.Groups) == 1 && s.Groups[0].State == "backup"
}

// end ends the processes, and removes addresses that they left behind.
func (d *namespaced) end() error {
	for _, p := range []*process.Process{d.vrrp, d.daemon} {
		if p != nil {
			p.Stop()
		}
	}
	host.KillInside(d.ns.Name()) // keepalived's are in groups of their own
	var errs []error
	if d.vrrp != nil && d.variant.Process == imbangProcess {
		// The data plane stays: what a killed process guards would keep keepalived from answering
		// in a later trial.
		_, err := d.command(context.Background(), "vrrp", "clean")
		errs = append(errs, err)
	}
	d.vrrp = nil
	err := d.ns.Do(func() error {
		var errs []error
		for _, f := range topology.Families {
			errs = append(errs,
				dropAddress(topology.ClientDevice, topology.PairVirtual(f)),
				dropAddress(topology.ServerDevice, topology.PairGateway(f)))
		}
		return errors.Join(errs...)
	})
	return errors.Join(append(errs, err)...)
}

// dropAddress removes an address if the device has it.
func dropAddress(device string, address netip.Prefix) error {
	_, has, err := host.FindAddress(device, address.Addr())
	if err != nil || !has {
		return err
	}
	return host.DeleteAddress(device, address)
}

// detach removes the data plane with all that is pinned.
func (d *namespaced) detach() error {
	if d.daemon == nil {
		return nil // it was never started
	}
	_, err := d.command(context.Background(), "detach")
	if err != nil && strings.Contains(err.Error(), "no director is loaded") {
		return nil // its daemon was killed while it loaded one
	}
	return err
}
