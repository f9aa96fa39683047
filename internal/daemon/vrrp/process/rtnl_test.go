// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// Of linux/userfaultfd.h.
const (
	uffdAPI        = 0xaa
	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
	uffdioZero     = 0xc020aa04
	registerMiss   = 1
)

// holdRTNL has the kernel hold its RTNL lock until the function that it returns is called:
// an ioctl of ethtool(8) reads, with the lock, a page that nobody fills until then. It is one
// lock for all network namespaces, so this must be short.
func holdRTNL(t testing.TB, ns *host.Namespace, device string) (release func()) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Skipf("userfaultfd: %v", errno)
	}
	ioctl := func(request uintptr, argument unsafe.Pointer) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(argument)); errno != 0 {
			t.Fatalf("userfaultfd: %v", errno)
		}
	}
	ioctl(uffdioAPI, unsafe.Pointer(&[3]uint64{uffdAPI}))
	size := unix.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	second := uint64(uintptr(unsafe.Pointer(&memory[size])))
	ioctl(uffdioRegister, unsafe.Pointer(&[4]uint64{second, uint64(size), registerMiss}))
	// struct ethtool_sfeatures, of which the command is on the first page.
	command := memory[size-4 : size]
	binary.NativeEndian.PutUint32(command, unix.ETHTOOL_SFEATURES)
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&command[0])}
	copy(request.name[:], device)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ns.Do(func() error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
				unix.Close(s)
			}
			return err
		})
	}()
	// A fault is reported when the lock is held.
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(awaited.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || poll[0].Revents != unix.POLLIN {
			t.Fatalf("the lock is not held: %v", err)
		}
		break
	}
	released := false
	release = func() {
		if released {
			return
		}
		released = true
		ioctl(uffdioZero, unsafe.Pointer(&[4]uint64{second, uint64(size)}))
		<-done
		unix.Close(int(fd))
		_ = unix.Munmap(memory)
		runtime.KeepAlive(&request)
	}
	t.Cleanup(release)
	return release
}

// A master advertises, a backup takes over and a reload is applied while another program
// holds the kernel's RTNL lock; the addresses follow when it is free.
func TestRTNLHeld(t *testing.T) { testenv.Patient(t, testRTNLHeld) }

func testRTNLHeld(t testing.TB) {
	link := newNetwork(t)
	group, other := web(150, virtual4, own4(2)), web(100, virtual4, own4(1))
	group.Interval, other.Interval = calm, calm
	a, b := newNode(t, link.host(1), group).start(), newNode(t, link.host(2), other).start()
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	quiet := func(what string) {
		t.Helper()
		if s := a.group(); s.Counts.Stalls > 0 || s.Counts.Left > 0 {
			t.Errorf("%s: %+v", what, s)
		}
		if s := b.group(); s.Counts.Became > 0 || s.Counts.Stalls > 0 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	before := a.group().Counts.Sent
	release := holdRTNL(t, a.ns, "lo")
	time.Sleep(2 * calm)
	more := vrrp.Address{Device: "eth0", Prefix: netip.MustParsePrefix("10.20.0.3/24")}
	a.configure(func(s *setup.Setup) { s.Groups[0].Addresses = []vrrp.Address{more} })
	time.Sleep(2 * calm)
	if sent := a.group().Counts.Sent - before; sent < 3 {
		t.Errorf("%d advertisements", sent)
	}
	quiet("the lock was held")
	release()
	a.await("the addresses follow", func() bool { return has(t, a.ns, more) == 1 && has(t, a.ns, gateway) == 0 })
	quiet("the lock is free")
	a.vanish(false)
	release = holdRTNL(t, b.ns, "lo")
	defer release()
	b.await("the other one is master", b.is(vrrp.Master))
	sent := b.group().Counts.Sent
	time.Sleep(3 * calm)
	if s := b.group(); s.Counts.Sent < sent+2 || s.Counts.Announced > 0 {
		t.Errorf("it advertises, and does not announce what it does not have yet: %+v", s)
	}
	b.await("it leaves, as another director might have them", b.is(vrrp.Fault))
	release()
	b.await("it has the addresses, and announces them", func() bool { return has(t, b.ns, all...) == len(all) && b.group().Counts.Announced > 0 })
}

// A backup that could not add the addresses, as another program holds the RTNL lock, does not
// preempt before it can, whether the worker waits for the lock already or is idle.
func TestNoPreemptionWithoutRTNL(t *testing.T) {
	for name, delay := range map[string]time.Duration{"the worker waits": 0, "the worker is idle": 6 * calm} {
		testenv.PatientRun(t, name, func(t testing.TB) {
			link := newNetwork(t)
			group, other := web(150, virtual4, own4(2)), web(100, virtual4, own4(1))
			group.Interval, other.Interval, group.PreemptDelay = calm, calm, delay
			b := newNode(t, link.host(2), other).start()
			b.await("master", b.is(vrrp.Master))
			if delay == 0 {
				group.Priority = 50
			}
			a := newNode(t, link.host(1), group).start()
			a.await("it follows", func() bool { return a.group().Routers[0].Master != "" })
			release := holdRTNL(t, a.ns, "lo")
			if delay == 0 { // a reload reads the devices
				a.configure(func(s *setup.Setup) { s.Groups[0].Priority = 150 })
			}
			a.stays("backup", delay+6*calm, func() bool { return a.is(vrrp.Backup)() && b.is(vrrp.Master)() })
			release()
			a.await("it preempts", func() bool {
				return a.is(vrrp.Master)() && has(t, a.ns, group.AllAddresses()...) == len(group.AllAddresses())
			})
			if s := a.group(); s.Counts.Became != 1 || s.Counts.Left > 0 || s.Counts.Stalls > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What bounds of tests allow for has the time in it for which others hold the lock.
func TestRTNLIsAStall(t *testing.T) {
	ns := testenv.Namespace(t, "lock")
	stalls := testenv.WatchStalls(t)
	release := holdRTNL(t, ns, "lo")
	time.Sleep(400 * time.Millisecond)
	got := stalls.Longest()
	release()
	if got < 200*time.Millisecond {
		t.Errorf("a stall of %v while the lock was held for 400 ms", got)
	}
}
