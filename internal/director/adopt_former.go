// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/director/layout"
)

// Builds up to ABI 2 had connections in hash tables of the kernel, conns4 and conns6. Their values
// have the flow, too. Further ones led from the server's flow to the client's, and of hairpins back.

// formerTables are the names of these tables, and formerValues of their values' types.
var (
	formerTables = []string{"conns4", "conns6"}
	formerValues = map[string]string{"conns4": "conn4", "conns6": "conn6"}
	// formerReplies are the tables of their replies.
	formerReplies = map[string]string{"conns4": "reverse4", "conns6": "reverse6"}
)

const formerHairpins = "hairpins"

// Fields of such a value, by their paths in its type. The fields of the second list are newer than
// the first builds: a value without them has 0 there.
var (
	formerFields = []string{
		"flow.src", "flow.protocol", "expires", "server", "port", "state", "flags", "template", "forward", "in_packets",
		"(fwmark|controlled)", "(netmask|timeout)",
	}
	formerAdditions = []string{"told_end", "number"}
)

// formerConn is where the fields are in a value.
type formerConn struct {
	at  map[string]layout.Field
	six bool
}

func formerConnOf(was layout.Layout, six bool) (f formerConn, err error) {
	f = formerConn{at: map[string]layout.Field{}, six: six}
	for _, field := range was.Fields {
		if slices.Contains(formerFields, field.Path) || slices.Contains(formerAdditions, field.Path) {
			f.at[field.Path] = field
		}
	}
	for _, path := range formerFields {
		if _, ok := f.at[path]; !ok {
			return f, fmt.Errorf("its values have no %s", path)
		}
	}
	protocol := unsafe.Offsetof(bpfobj.LbFlow4{}.Protocol)
	if six {
		protocol = unsafe.Offsetof(bpfobj.LbFlow{}.Protocol)
	}
	if f.at["flow.protocol"].Offset-f.at["flow.src"].Offset != uint32(protocol) {
		return f, errors.New("its flows have another layout")
	}
	return f, nil
}

// number reads a field; one that the value does not have is 0.
func (f *formerConn) number(value []byte, path string) uint64 {
	field := f.at[path]
	b := value[field.Offset:][:field.Size]
	switch field.Size {
	case 0:
		return 0
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

// formerToldShift is where such a value's number had what backups know.
const formerToldShift = 28

// record is a value as it is entered again.
func (f *formerConn) record(value []byte) bpfobj.LbConnRecord {
	n := func(path string) uint64 { return f.number(value, path) }
	return bpfobj.LbConnRecord{
		Flow: f.flow(value), Server: uint32(n("server")), Expires: n("expires"), Port: uint16(n("port")), State: uint8(n("state")),
		Flags: uint8(n("flags")), Template: uint8(n("template")), Forward: uint8(n("forward")), InPackets: uint16(n("in_packets")),
		Fwmark: uint32(n("(fwmark|controlled)")), Netmask: uint32(n("(netmask|timeout)")),
		ToldEnd: uint16(n("told_end")), Told: uint8(n("number") >> formerToldShift),
	}
}

func (f *formerConn) flow(value []byte) (flow bpfobj.LbFlow) {
	at := value[f.at["flow.src"].Offset:]
	if f.six {
		copy(memoryOf(&flow), at)
		return flow
	}
	var four bpfobj.LbFlow4
	copy(memoryOf(&four), at)
	return fromFlow4(four)
}

// memoryOf is a value's memory.
func memoryOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// formerRepliesOf knows the replies of the connections of a table. The new build's servers have the
// same ids.
type formerRepliesOf struct {
	reverse, hairpins *ebpf.Map
	servers           *paged
}

// complete says where the replies of a connection go that is said to have an entry of them. They may be
// another's by now.
func (f *formerRepliesOf) complete(r *bpfobj.LbConnRecord) error {
	if r.Flow.Template != 0 || r.Flags&connHasReplies == 0 {
		return nil
	}
	if r.Flags&connHairpin != 0 {
		var reverse bpfobj.LbFlow
		has, err := found(f.hairpins.Lookup(r.Flow, &reverse))
		if !has {
			r.Flags &^= connHairpin
		}
		r.Hairpin, r.HairpinPort = reverse.Dst, reverse.Dport
		return err
	}
	var s bpfobj.LbServer
	has, err := found(f.servers.Lookup(r.Server, &s))
	if err == nil && has {
		has, err = f.leads(bpfobj.LbFlow{
			Src: s.Addr, Dst: r.Flow.Src, Sport: r.Port, Dport: r.Flow.Sport, Protocol: r.Flow.Protocol, Family: r.Flow.Family,
		}, r.Flow)
	}
	if !has {
		r.Flags &^= connListed
	}
	return err
}

// leads reports whether a server's flow leads to a client's.
func (f *formerRepliesOf) leads(reverse, client bpfobj.LbFlow) (bool, error) {
	if f.reverse.KeySize() == uint32(unsafe.Sizeof(reverse)) {
		var to bpfobj.LbFlow
		has, err := found(f.reverse.Lookup(reverse, &to))
		return has && to == client, err
	}
	var to bpfobj.LbFlow4
	has, err := found(f.reverse.Lookup(toFlow4(reverse), &to))
	return has && to == toFlow4(client), err
}

// found reports whether a look-up has found an element.
func found(err error) (bool, error) {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	return err == nil, err
}
