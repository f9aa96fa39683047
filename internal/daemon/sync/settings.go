// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"math/bits"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/director"
)

// maxThreads is the most that sync_ports may say (IPVS_SYNC_PORTS_MAX).
const maxThreads = 64

// Settings are those of net.ipv4.vs that synchronization depends on outside the data
// plane.
type Settings struct {
	// Threads is how many ports carry messages, by flow (sync_ports): a power of two, from
	// 1 to 64. It is read when a role begins.
	Threads int
	Version uint8 // of messages that a master sends (sync_version)
	// Queue is how many messages of a thread may wait to be sent (sync_qlen_max).
	Queue int
	// SocketSize is the size of the sockets' buffers [bytes]; 0: receiveBuffer, and the system's for sending
	// (sync_sock_size). It is read when a role begins.
	SocketSize int
}

// defaultSettings are Linux's. Its sync_qlen_max is a 32nd of the pages of memory; here it
// is that of 4 GiB.
func defaultSettings() Settings {
	return Settings{Threads: 1, Version: kernel.Version1, Queue: 4 << 30 >> 12 >> 5}
}

// settingsOf finds the settings among the director's. A number of threads that is no power
// of two is rounded down to one.
func settingsOf(all []director.Setting) Settings {
	s := defaultSettings()
	for _, one := range all {
		value := int(one.Value)
		switch one.Name {
		case "sync_ports":
			value = min(max(value, 1), maxThreads)
			s.Threads = 1 << (bits.Len(uint(value)) - 1)
		case "sync_version":
			s.Version = kernel.Version1
			if value == 0 {
				s.Version = kernel.Version0
			}
		case "sync_qlen_max":
			s.Queue = value
		case "sync_sock_size":
			s.SocketSize = value
		}
	}
	return s
}
