// SPDX-License-Identifier: Apache-2.0

package director

import (
	"time"

	"imbang/internal/model"
)

// Package testrun imports this one, so these tests cannot import it. The
// external part of them (testrun_external_test.go) does, and fills this in.

// Virtual is a testrun.Virtual with its Director.
type Virtual struct {
	VirtualDirector
	d *Director
}

// VirtualDirector is the part of testrun.Virtual that is used here.
type VirtualDirector interface {
	Director() *Director
	Close()
	Reset(seed uint64) error
	SetTime(time.Duration) error
	Sweep() error
	Serve(model.Service, []model.Server) error
	Load(server int) (active, inactive uint32, err error)
	FromClient(frame []byte) (Fate, error)
	FromServer(frame []byte) (Fate, error)
	Output() []byte
	Chosen() (server uint32, refused bool, err error)
}

// PacketLoop is testrun.PacketLoop.
type PacketLoop interface {
	Scene(frame []byte, first uint32, flows int) error
	Times(n int, way Way) (time.Duration, Fate, error)
	Close() error
}

// Fate and Way are those of testrun.
type (
	Fate = int32
	Way  = int
)

// Of testrun.
var (
	NewVirtualDirector func(sizes Sizes, clientDevice, serverDevice int) (VirtualDirector, error)
	NewPacketLoop      func(d *Director, clientDev, serverDev string) (PacketLoop, error)

	VirtualStart, VirtualTick           time.Duration
	PacketLoopBytes                     int
	Passed, Dropped, Forwarded          Fate
	Nowhere, FromHere, WholeOnly, InXDP Way
)

// NewVirtual makes one in the calling thread's network namespace.
func NewVirtual(sizes Sizes, clientDevice, serverDevice int) (*Virtual, error) {
	v, err := NewVirtualDirector(sizes, clientDevice, serverDevice)
	if err != nil {
		return nil, err
	}
	return &Virtual{v, v.Director()}, nil
}
