// SPDX-License-Identifier: Apache-2.0

package director_test

import (
	"time"

	"imbang/internal/director"
	"imbang/internal/director/testrun"
)

// virtual is a testrun.Virtual whose verdicts are plain numbers.
type virtual struct{ *testrun.Virtual }

func (v virtual) FromClient(frame []byte) (int32, error) {
	fate, err := v.Virtual.FromClient(frame)
	return int32(fate), err
}

func (v virtual) FromServer(frame []byte) (int32, error) {
	fate, err := v.Virtual.FromServer(frame)
	return int32(fate), err
}

// loop is likewise a testrun.PacketLoop.
type loop struct{ *testrun.PacketLoop }

func (l loop) Times(n int, way int) (time.Duration, int32, error) {
	each, fate, err := l.PacketLoop.Times(n, testrun.Way(way))
	return each, int32(fate), err
}

func init() {
	director.NewVirtualDirector = func(sizes director.Sizes, client, server int) (director.VirtualDirector, error) {
		v, err := testrun.NewVirtual(sizes, client, server)
		if err != nil {
			return nil, err
		}
		return virtual{v}, nil
	}
	director.NewPacketLoop = func(d *director.Director, client, server string) (director.PacketLoop, error) {
		l, err := testrun.NewPacketLoop(d, client, server)
		if err != nil {
			return nil, err
		}
		return loop{l}, nil
	}
	director.VirtualStart, director.VirtualTick = testrun.VirtualStart, testrun.Tick
	director.PacketLoopBytes = testrun.PacketLoopBytes
	director.Passed, director.Dropped, director.Forwarded = int32(testrun.Passed), int32(testrun.Dropped), int32(testrun.Forwarded)
	director.Nowhere, director.FromHere = int(testrun.Nowhere), int(testrun.FromHere)
	director.WholeOnly, director.InXDP = int(testrun.WholeOnly), int(testrun.InXDP)
}
