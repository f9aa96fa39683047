// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

// backupMask are the flags that a backup uses (IP_VS_CONN_F_BACKUP_MASK).
const backupMask = kernel.FlagForward | kernel.FlagNoOutput | kernel.FlagInactive | kernel.FlagSequences |
	kernel.FlagNoCPort | kernel.FlagTemplate

// maxTimeout is the longest that the director accepts, which is also ipvsadm's longest
// persistence. Linux has practically no bound.
const maxTimeout = 31 * 24 * time.Hour

// engineSIP is the persistence engine that both sides have.
const engineSIP = "sip"

// Why an entry is not sent, or a record not used.
var (
	errState    = errors.New("a state that the protocol has not")
	errProtocol = errors.New("a protocol that has no connections")
	errEngine   = errors.New("an unknown persistence engine, or data without an engine")
	errHelper   = errors.New("a connection of an application helper (ip_vs_ftp): its sequence numbers were changed, or it has no client port yet")
	errMethod   = errors.New("a forwarding method without a server")
)

// recordOf is what a master sends of an entry, as ip_vs_sync_conn fills it. The flags are
// those that Linux's entries have: a server of direct routing that is the director itself
// keeps its method, templates are inactive, and IP_VS_CONN_F_NOOUTPUT says that the
// method is not masquerading and no reply was seen.
func recordOf(c *model.Connection) (kernel.Record, error) {
	number, ok := c.StateNumber()
	if !ok {
		return kernel.Record{}, fmt.Errorf("%w: %s %q", errState, c.Protocol, c.State)
	}
	r := kernel.Record{
		Protocol: uint8(c.Protocol), Flags: uint32(methodSent(c.Forward)), State: uint16(number),
		Client: c.Client, Virtual: c.Virtual, Server: c.Server,
		Mark: c.Service.Mark, Timeout: uint32(c.Timeout / time.Second),
	}
	if c.Forward != model.Masquerade && c.Flags&model.ConnReplied == 0 {
		r.Flags |= kernel.FlagNoOutput
	}
	if c.Template || c.Flags&model.ConnInactive != 0 {
		r.Flags |= kernel.FlagInactive
	}
	if c.Template {
		r.Flags |= kernel.FlagTemplate
		if c.Engine != "" {
			r.Engine, r.EngineData = c.Engine, []byte(c.EngineData)
		}
	}
	return r, nil
}

// methodSent is the method in the flags: that which the server was added with. What is
// local to this director need not be local to another.
func methodSent(f model.Forward) model.Forward {
	if f == model.LocalNode {
		return model.Route
	}
	return f
}

// connectionOf is the entry that a backup makes of a record, as ip_vs_proc_sync_conn and
// ip_vs_process_message_v0 read it. Its service is the mark, if there is one, and
// otherwise to be found by its virtual address, and so is its server. Timeout is how long
// it lives, and so is Expires.
//
// The flag ConnReplied is not set: as on Linux, an entry begins with what its server has
// (ip_vs_bind_dest), whatever the master knew.
func connectionOf(r *kernel.Record, t model.Timeouts) (model.Connection, error) {
	flags := r.Flags & backupMask
	c := model.Connection{
		Protocol: model.Protocol(r.Protocol), Client: r.Client, Virtual: r.Virtual, Server: r.Server,
		Forward: model.Forward(flags & kernel.FlagForward), Template: flags&kernel.FlagTemplate != 0,
	}
	if r.Mark != 0 {
		c.Service = model.MarkKey(r.Mark, model.FamilyOf(r.Virtual.Addr()))
	}
	if !c.Forward.Known() {
		return c, errMethod
	}
	if r.Sequences != nil || flags&kernel.FlagSequences != 0 || !c.Template && flags&kernel.FlagNoCPort != 0 {
		return c, errHelper
	}
	c.Timeout = min(time.Duration(r.Timeout)*time.Second, maxTimeout)
	var err error
	if c.Template {
		err = readTemplate(&c, r)
	} else {
		err = readConnection(&c, r, flags, t)
	}
	c.Expires = c.Timeout
	return c, err
}

// readConnection completes what only connections have.
func readConnection(c *model.Connection, r *kernel.Record, flags uint32, t model.Timeouts) error {
	states := model.States(c.Protocol, false)
	if states == nil {
		return errProtocol
	}
	if int(r.State) >= len(states) {
		return errState
	}
	c.State = states[r.State]
	if c.Timeout == 0 {
		c.Timeout = stateTimeout(t, c.Protocol, uint8(r.State))
	}
	if flags&kernel.FlagInactive != 0 {
		c.Flags = model.ConnInactive
	}
	return nil
}

// readTemplate completes what only templates have.
func readTemplate(c *model.Connection, r *kernel.Record) error {
	if c.Protocol != 0 && model.States(c.Protocol, false) == nil {
		return errProtocol
	}
	c.State = model.TemplateNone
	if r.State == 1 {
		c.State = model.TemplateAssured
	}
	if c.Timeout == 0 {
		c.Timeout = templateTimeout
	}
	if len(r.EngineData) > 0 {
		if r.Engine != engineSIP {
			return errEngine
		}
		c.Engine, c.EngineData = r.Engine, string(r.EngineData)
	}
	if c.Protocol == 0 && r.Mark == 0 {
		// Version 0 has no mark, but the virtual address of such a template is the
		// mark.
		c.Service = model.MarkKey(markOf(r.Virtual.Addr()), model.FamilyOf(r.Virtual.Addr()))
		if c.Service.Mark == 0 {
			return errProtocol
		}
	}
	return nil
}

// markOf is the mark that the templates of a fwmark service have as virtual address: its
// first four bytes, big-endian.
func markOf(a netip.Addr) uint32 {
	if a.Is4() {
		b := a.As4()
		return binary.BigEndian.Uint32(b[:])
	}
	b := a.As16()
	return binary.BigEndian.Uint32(b[:4])
}
