// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// rtnlPeriod is how often the RTNL lock is asked for.
const rtnlPeriod = 50 * time.Millisecond

// watchRTNL asks the kernel for a device again and again: it answers with the RTNL lock held. It
// allocates nothing while it does.
func (s *Stalls) watchRTNL(end <-chan struct{}) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return
	}
	request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(request[unix.SizeofNlMsghdr+4:], 1) // lo
	reply := make([]byte, 1<<14)
	wake := time.NewTimer(rtnlPeriod)
	defer wake.Stop()
	for {
		select {
		case <-end:
			return
		case <-wake.C:
		}
		s.mu.Lock()
		s.asked = time.Now()
		s.mu.Unlock()
		_, err := unix.Write(fd, request) // returns when the kernel has answered
		if err == nil {
			_, err = unix.Read(fd, reply)
		}
		s.mu.Lock()
		s.note()
		s.asked = time.Time{}
		s.mu.Unlock()
		if err != nil {
			return
		}
		wake.Reset(rtnlPeriod)
	}
}
