// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is a feature of a device that ethtool -k lists. Functions here mean
// the calling thread's network namespace.
type Offload struct {
	Name     string // as ethtool -K has it
	get, set uint32 // commands of linux/ethtool.h
	flag     uint32 // its bit, where the command has several
}

// The offloads that matter for forwarding.
var (
	TxChecksum = Offload{"tx", 0x16, 0x17, 0}
	TSO        = Offload{"tso", 0x1e, 0x1f, 0}
	GRO        = Offload{"gro", 0x2b, 0x2c, 0}
	LRO        = Offload{"lro", 0x25, 0x26, 1 << 15}
	TxVLAN     = Offload{"txvlan", 0x25, 0x26, 1 << 7}
	RxVLAN     = Offload{"rxvlan", 0x25, 0x26, 1 << 8} // takes tags off frames that come in
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ command, data uint32 }

// OffloadOn reports whether a device has a feature on.
func OffloadOn(dev string, o Offload) (bool, error) {
	v := ethtoolValue{command: o.get}
	if err := ethtool(dev, unsafe.Pointer(&v)); err != nil {
		return false, fmt.Errorf("device %s: read offload %s: %w", dev, o.Name, err)
	}
	if o.flag != 0 {
		v.data &= o.flag
	}
	return v.data != 0, nil
}

// SetOffload turns a feature of a device on or off.
func SetOffload(dev string, o Offload, on bool) error {
	v := ethtoolValue{command: o.get}
	err := ethtool(dev, unsafe.Pointer(&v))
	if err == nil {
		bit := max(o.flag, 1)
		v.command = o.set
		v.data &^= bit
		if o.flag == 0 {
			v.data = 0
		}
		if on {
			v.data |= bit
		}
		err = ethtool(dev, unsafe.Pointer(&v))
	}
	if err != nil {
		return fmt.Errorf("device %s: set offload %s: %w", dev, o.Name, needRoot(err))
	}
	return nil
}

// SetOffload turns a feature of one of the namespace's devices on or off.
func (n *Namespace) SetOffload(dev string, o Offload, on bool) error {
	return n.Do(func() error { return SetOffload(dev, o, on) })
}

// Driver is the name of a device's driver; "" if it does not say.
func Driver(dev string) string {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(s)
	info, err := unix.IoctlGetEthtoolDrvinfo(s, dev)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// Queues are a device's queues of packets that come in.
type Queues struct{ Now, Most int }

// RxQueues counts them; ok is false where the driver does not say.
func RxQueues(dev string) (q Queues, ok bool) {
	// struct ethtool_channels of linux/ethtool.h
	c := struct {
		command                                uint32
		maxRx, maxTx, maxOther, maxCombined    uint32
		rxCount, txCount, otherCount, combined uint32
	}{command: 0x3c}
	if ethtool(dev, unsafe.Pointer(&c)) != nil {
		return q, false
	}
	return Queues{int(c.rxCount + c.combined), int(c.maxRx + c.maxCombined)}, true
}

// ErrNoOffload says that a driver knows nothing of what is asked.
var ErrNoOffload = errors.New("the driver does not have it")

// ethtool carries out a command, which it begins with.
func ethtool(dev string, command unsafe.Pointer) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	// struct ifreq of linux/if.h
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	if len(dev) >= len(request.name) {
		return unix.ENODEV
	}
	copy(request.name[:], dev)
	request.data = command
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	switch errno {
	case 0:
		return nil
	case unix.EOPNOTSUPP:
		return ErrNoOffload
	}
	return errno
}
