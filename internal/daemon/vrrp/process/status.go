// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"imbang/internal/daemon/vrrp"
)

// Status is what a process answers clients.
type Status struct {
	PID         int       `json:"pid"`
	Since       time.Time `json:"since"`                  // when the program started
	Config      string    `json:"config"`                 // path of the configuration
	Reloaded    time.Time `json:"reloaded"`               // when it was applied last
	ReloadError string    `json:"reload_error,omitempty"` // why the last reload was refused
	NotRealTime string    `json:"not_real_time,omitempty"`
	LateMS      float64   `json:"late_ms"` // the longest time by which a timer was handled late
	// Director: the data plane of one is used, for leases. Error is why it is not, or not wholly.
	Director      bool     `json:"director"`
	DirectorError string   `json:"director_error,omitempty"`
	Daemon        bool     `json:"daemon"`           // imbang run reports what it knows
	Yields        string   `json:"yields,omitempty"` // why this director yields to another one that sees more servers
	Groups        []Group  `json:"groups"`
	Scripts       []Script `json:"scripts"`
}

// Group is one of the configuration.
type Group struct {
	Name         string    `json:"name"`
	State        string    `json:"state"` // initialize, fault, backup or master
	Since        time.Time `json:"since"`
	Cause        string    `json:"cause"`    // of the state
	Priority     uint8     `json:"priority"` // with what is tracked
	BasePriority uint8     `json:"base_priority"`
	IntervalMS   float64   `json:"interval_ms"`
	AwaitsSync   bool      `json:"awaits_synchronization"` // it does not preempt before it has all connections of the master
	Synchronized bool      `json:"synchronized"`           // it has, or does not wait for them
	GaveUp       bool      `json:"gave_up"`                // it does not preempt: it was given up, or cannot do what a master does
	Merging      bool      `json:"merging"`                // it yields to a better master when that has its connections
	Faults       []string  `json:"faults"`
	Routers      []Router  `json:"routers"`
	Addresses    []Address `json:"addresses"` // that move and are not advertised
	Counts       Counts    `json:"counts"`
	Refused      []Refused `json:"refused"`              // advertisements, all reasons
	SendError    string    `json:"send_error,omitempty"` // of the last advertisements, with their routers and destinations
	Foreign      []string  `json:"foreign"`              // addresses of the group that another program added to the host
	Refrains     bool      `json:"refrains"`             // it does not preempt, after it could not do what a master does
}

// Router is a virtual router.
type Router struct {
	Device    string    `json:"device"`
	ID        uint8     `json:"id"`
	Source    string    `json:"source,omitempty"` // that advertisements are sent from
	Peers     []string  `json:"peers"`            // none: by multicast
	Addresses []string  `json:"addresses"`
	Elsewhere []Address `json:"elsewhere,omitempty"`  // advertised, too, and configured on other devices
	Master    string    `json:"master,omitempty"`     // of a backup: the director that is followed
	MasterMAC string    `json:"master_mac,omitempty"` // hardware address of the other director that was heard last as master
	Dropped   uint32    `json:"dropped"`              // packets that the kernel had no room for, of all routers of device and family
}

// Address is one with its device.
type Address struct {
	Address string `json:"address"`
	Device  string `json:"device"`
}

// Counts are counters since the program started.
type Counts struct {
	Sent         uint64 `json:"sent"`          // advertisements
	Unsent       uint64 `json:"unsent"`        // that could not be sent
	Received     uint64 `json:"received"`      // that were accepted
	Ignored      uint64 `json:"ignored"`       // of these
	Strangers    uint64 `json:"strangers"`     // by unicast, of directors that are not peers
	Became       uint64 `json:"became"`        // transitions to master
	Left         uint64 `json:"left"`          // transitions from master
	OtherMasters uint64 `json:"other_masters"` // seen while master
	Stalls       uint64 `json:"stalls"`        // of the process or the host
	Announced    uint64 `json:"announced"`     // gratuitous ARP requests and neighbour advertisements
}

// Refused is how many advertisements were refused for a reason.
type Refused struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Script is one that is tracked.
type Script struct {
	Name    string    `json:"name"`
	Verdict string    `json:"verdict"` // unknown, up or down
	Since   time.Time `json:"since"`
	Detail  string    `json:"detail,omitempty"` // of the last run
}

func (l *loop) status() *Status {
	s := &Status{
		PID: os.Getpid(), Since: l.began, Config: l.File, Reloaded: l.loaded, ReloadError: l.loadError, NotRealTime: l.notRealTime,
		LateMS: milliseconds(l.late), Groups: []Group{}, Scripts: []Script{},
	}
	s.Director, s.DirectorError, s.Daemon = l.plane != nil, l.planeErrors(), l.facts.fresh(now())
	if l.facts.Yield {
		s.Yields = cmp.Or(l.facts.YieldReason, "another director sees more servers")
	}
	for _, g := range l.groups {
		s.Groups = append(s.Groups, g.status())
	}
	for _, one := range l.setup.Scripts {
		_, state := l.tracker.state(one.Name)
		s.Scripts = append(s.Scripts, Script{one.Name, state.Verdict.String(), state.Since, state.Last.Detail})
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (g *group) status() Group {
	c := g.machine.Counts()
	s := Group{
		Name: g.setup.Name, State: g.machine.State().String(), Since: g.since, Cause: g.cause.String(),
		Priority: g.effective, BasePriority: g.setup.Priority, IntervalMS: milliseconds(g.setup.Interval),
		Faults: append([]string{}, g.faults...), Routers: []Router{}, Addresses: []Address{}, Refused: []Refused{}, SendError: g.sendErrors(),
		Foreign: append([]string{}, g.foreign...), Refrains: g.refrains,
		Counts: Counts{
			Sent: c.Sent, Unsent: g.unsent, Received: c.Received, Ignored: c.Ignored, Strangers: g.strangers, Became: c.Became, Left: c.Left,
			OtherMasters: c.OtherMasters, Stalls: c.Stalls, Announced: g.announced,
		},
	}
	memory := g.machine.Snapshot()
	s.AwaitsSync, s.Synchronized, s.GaveUp, s.Merging = g.setup.AwaitSync, g.synchronized(), memory.GaveUp, g.machine.Merging()
	for i := range g.setup.Routers {
		r := &g.setup.Routers[i]
		one := Router{Device: r.Device, ID: r.ID, Peers: []string{}, Addresses: []string{}}
		if g.sources[i].IsValid() {
			one.Source = g.sources[i].String()
		}
		for _, p := range r.Peers {
			one.Peers = append(one.Peers, p.String())
		}
		for _, p := range r.Addresses {
			one.Addresses = append(one.Addresses, p.String())
		}
		for _, a := range r.Elsewhere {
			one.Elsewhere = append(one.Elsewhere, Address{a.Prefix.String(), a.Device})
		}
		if master := memory.Routers[i].Master; memory.State == vrrp.Backup && master.IsValid() {
			one.Master = master.String()
		}
		if d := g.devices[r.Device]; d != nil {
			one.MasterMAC = g.macs[neighbour{d.Index, g.heard[i]}].String()
		}
		if at := g.loop.sockets[spot{r.Device, r.IPv6()}]; at != nil && at.Socket != nil {
			one.Dropped = at.Dropped()
		}
		s.Routers = append(s.Routers, one)
	}
	for _, a := range g.setup.Addresses {
		s.Addresses = append(s.Addresses, Address{a.Prefix.String(), a.Device})
	}
	for _, reason := range vrrp.Reasons() {
		s.Refused = append(s.Refused, Refused{reason.String(), g.refused[reason]})
	}
	return s
}

// sendErrors are those of the last advertisements.
func (g *group) sendErrors() string {
	var all []string
	for key, text := range g.sending {
		r := &g.setup.Routers[key.router]
		all = append(all, fmt.Sprintf("router %d on %s to %s: %s", r.ID, r.Device, key.to, text))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func statusSocket(dir string) string { return filepath.Join(dir, "status.sock") }

// Between a client and the process.
const (
	statusPatience = 2 * time.Second
	statusClients  = 16 // at once
	maxStatus      = 16 << 20
)

// serveStatus answers clients, each with the status as it is then, until the function that
// it returns is called. The socket is for root alone.
func (l *loop) serveStatus() (func(), error) {
	path := statusSocket(l.Dir)
	_ = os.Remove(path) // of a process that was killed: this one has the lock
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("status socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("status socket: %w", err)
	}
	go acceptClients(listener, statusClients, l.answer)
	return func() { listener.Close() }, nil
}

func (l *loop) answer(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(statusPatience))
	answer := make(chan *Status, 1)
	l.poll.post(func() { answer <- l.status() })
	select {
	case s := <-answer:
		_ = json.NewEncoder(c).Encode(s)
	case <-time.After(statusPatience): // the client sees the end of the connection
	}
}

// ErrNone says that there is no process.
var ErrNone = errors.New("imbang vrrp does not run in this network namespace (imbang vrrp; systemctl status imbang-vrrp)")

// Ask asks the process of a directory for its status.
func Ask(dir string) (*Status, error) { return AskWithin(dir, 2*statusPatience) }

// AskWithin is likewise, with the longest time that it may take.
func AskWithin(dir string, patience time.Duration) (*Status, error) {
	deadline := time.Now().Add(patience)
	c, err := net.DialTimeout("unix", statusSocket(dir), patience)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNone
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("not permitted: only root may ask imbang vrrp; run it with sudo: %w", os.ErrPermission)
	}
	if err != nil {
		return nil, fmt.Errorf("status of imbang vrrp: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(deadline)
	s := &Status{}
	if err := json.NewDecoder(io.LimitReader(c, maxStatus)).Decode(s); err != nil {
		return nil, fmt.Errorf("status of imbang vrrp: no answer (the process may be stopped): %w", err)
	}
	return s, nil
}
