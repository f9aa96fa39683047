// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"imbang/internal/host"
	"imbang/internal/lab/guest"
	"imbang/internal/lab/topology"
)

// consoleLog is what came on a machine's console: keepalived's messages, and the kernel's.
const consoleLog = "console.log"

// machine is a director that is an emulated machine with the kernel's IPVS and keepalived. It
// is booted for each trial, so that nothing of an earlier one is left.
type machine struct {
	files
	name    string // of the guest
	fabric  *host.Namespace
	spec    topology.Machine
	masters *masters

	configuration configuration
	guest         *guest.Guest
	loaded        bool // it has its services

	mu      sync.Mutex
	console *os.File
}

func (m *machine) configure(c configuration) error {
	m.configuration = c
	m.configuration.director = m.number
	return m.renew()
}

// startDaemon boots the machine, which then has its services.
func (m *machine) startDaemon(ctx context.Context) (err error) {
	log, err := os.OpenFile(m.file(consoleLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.console = log
	m.mu.Unlock()
	spec := guest.Spec{Name: m.name, Modules: []string{"ip_vs_rr"}, Lines: m.hear}
	for _, d := range m.spec.Devices {
		spec.Devices = append(spec.Devices, guest.Device{Tap: d.Tap, MAC: d.MAC})
	}
	if m.guest, err = guest.Boot(ctx, m.fabric, spec); err != nil {
		return fmt.Errorf("director %d: %w", m.number+1, err)
	}
	// The guest cuts off frames that are longer than its buffers, which the bridge has to
	// segment. Booting sets the offloads of its tap devices.
	for _, d := range m.spec.Devices {
		if err := m.fabric.SetOffload(d.Tap, host.TSO, false); err != nil {
			return err
		}
	}
	if _, err := m.do(ctx, machineScript(m.spec, m.configuration)); err != nil {
		return err
	}
	m.loaded = true
	return nil
}

func (m *machine) startVRRP(ctx context.Context) error {
	_, err := m.do(ctx, keepalivedScript)
	return err
}

func (m *machine) start(ctx context.Context) error {
	if err := m.startDaemon(ctx); err != nil {
		return err
	}
	return m.startVRRP(ctx)
}

// do runs a script that has to succeed.
func (m *machine) do(ctx context.Context, script string) (string, error) {
	if m.guest == nil {
		return "", fmt.Errorf("director %d is not running", m.number+1)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := m.guest.Must(ctx, script)
	if err != nil {
		return "", fmt.Errorf("director %d: %w", m.number+1, err)
	}
	return out, nil
}

// hear takes a line of the console.
func (m *machine) hear(line string) {
	if device, a, has, is := parseAddressLine(line); is {
		if device == topology.ClientDevice && isVirtual(a.Addr().AsSlice()) {
			m.masters.note(m.number, has)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.console != nil {
		fmt.Fprintln(m.console, line)
	}
}

func (m *machine) synced(context.Context) bool { return m.loaded }

// isBackup: keepalived starts the kernel's synchronization when it becomes backup.
func (m *machine) isBackup(ctx context.Context) bool {
	if !m.isSaid(consoleLog, backupState) {
		return false
	}
	if m.configuration.variant.NoSync {
		return true
	}
	out, err := m.do(ctx, "ipvsadm -L --daemon")
	return err == nil && strings.Contains(out, "backup sync daemon")
}

// killVRRP stops keepalived's first process before: it would start the other one again, which
// in turn resigns when the first one is killed.
func (m *machine) killVRRP(ctx context.Context) error {
	_, err := m.do(ctx, fmt.Sprintf("p=$(<%s); kill -STOP $p; kill -KILL $(<%s); kill -KILL $p", machinePID, machineVRRPPID))
	return err
}

func (m *machine) resign(ctx context.Context) error {
	_, err := m.do(ctx, fmt.Sprintf("kill -TERM $(<%s)", machinePID))
	return err
}

// loseLink takes the device down: an emulated one keeps its carrier when the port goes down,
// which that of a real machine does not.
func (m *machine) loseLink(ctx context.Context) error {
	_, err := m.do(ctx, "ip link set "+topology.ClientDevice+" down")
	return err
}

func (m *machine) handOver(context.Context) error { return errNoMove }

func (m *machine) killDaemon() error { return errNoDaemon }

func (m *machine) upgrade(context.Context) error { return errNoDaemon }

func (m *machine) pids() []int {
	if m.guest == nil {
		return nil
	}
	return m.guest.PIDs()
}

// killAll ends the machine at once, which has no addresses then.
func (m *machine) killAll() error {
	if m.guest != nil {
		m.guest.Kill()
		m.guest, m.loaded = nil, false
		m.masters.note(m.number, false)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.console == nil {
		return nil
	}
	err := m.console.Close()
	m.console = nil
	return err
}

func (m *machine) end() error { return m.killAll() }

// detach: nothing stays.
func (m *machine) detach() error { return nil }
