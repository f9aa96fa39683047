// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"imbang/internal/version"
)

// packetsBuild measures cases with one build of the data plane. Cases are numbered.
type packetsBuild interface {
	open(i int, c packetCase) error
	round(i int, path string) (packetRound, error)
	closeAll() error
}

// ownBuild is that of this program.
type ownBuild struct{ sites []*packetSite }

func (b *ownBuild) open(i int, c packetCase) error {
	if i != len(b.sites) {
		return fmt.Errorf("case %d is opened behind %d", i, len(b.sites))
	}
	s, err := newPacketSite(c)
	b.sites = append(b.sites, s)
	return err
}

func (b *ownBuild) round(i int, path string) (packetRound, error) {
	if i < 0 || i >= len(b.sites) {
		return packetRound{}, fmt.Errorf("case %d is not open", i)
	}
	return b.sites[i].round(path)
}

func (b *ownBuild) closeAll() (err error) {
	for _, s := range b.sites {
		err = errors.Join(err, s.close())
	}
	b.sites = nil
	return err
}

// packetsOrder is a line that another build's program reads: a case to open, a path to
// measure it by, or neither: close all. Its fields are the agreement between builds.
type packetsOrder struct {
	Site int         `json:"site"`
	Open *packetCase `json:"open,omitempty"`
	Path string      `json:"path,omitempty"`
}

// packetsAnswer is the line that it writes then. One without an order comes first.
type packetsAnswer struct {
	Build *PacketsBuild `json:"build,omitempty"`
	Round packetRound   `json:"round"`
	Error string        `json:"error,omitempty"`
}

// PacketsBuild is another build of imbang-lab.
type PacketsBuild struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
}

// ServePackets measures cases for another build's imbang-lab, until the orders end.
func ServePackets(orders io.Reader, answers io.Writer) (err error) {
	own := &ownBuild{}
	defer func() { err = errors.Join(err, own.closeAll()) }()
	in, out := json.NewDecoder(orders), json.NewEncoder(answers)
	in.DisallowUnknownFields()
	if err := out.Encode(packetsAnswer{Build: &PacketsBuild{version.Version, version.Revision()}}); err != nil {
		return err
	}
	for {
		var order packetsOrder
		if err := in.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		var answer packetsAnswer
		var failed error
		switch {
		case order.Open != nil:
			failed = own.open(order.Site, *order.Open)
		case order.Path != "":
			answer.Round, failed = own.round(order.Site, order.Path)
		default:
			failed = own.closeAll()
		}
		if failed != nil {
			answer.Error = failed.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// WorkerFlag is the flag with which imbang-lab bench packets calls ServePackets.
const WorkerFlag = "worker"

// otherBuild is that of another imbang-lab, which runs beside this one.
type otherBuild struct {
	PacketsBuild
	program string
	cmd     *exec.Cmd
	orders  io.WriteCloser
	in      *json.Encoder
	out     *json.Decoder
}

// startBuild starts the program.
func startBuild(program string) (*otherBuild, error) {
	b := &otherBuild{program: program, cmd: exec.Command(program, "bench", "packets", "--"+WorkerFlag)}
	b.cmd.Stderr = os.Stderr
	// A terminal's signals must not reach it: it cleans up when its orders end.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	orders, err := b.cmd.StdinPipe()
	if err != nil {
		return nil, b.failed(err)
	}
	answers, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, b.failed(err)
	}
	if err := b.cmd.Start(); err != nil {
		return nil, b.failed(err)
	}
	b.orders, b.in, b.out = orders, json.NewEncoder(orders), json.NewDecoder(answers)
	first, err := b.answer()
	if err == nil && first.Build == nil {
		err = errors.New("it does not say which build it is")
	}
	if err != nil {
		return nil, errors.Join(b.failed(err), b.stop())
	}
	b.PacketsBuild = *first.Build
	return b, nil
}

func (b *otherBuild) failed(err error) error {
	return fmt.Errorf("the build of %s: %w", b.program, err)
}

func (b *otherBuild) answer() (a packetsAnswer, err error) {
	if err := b.out.Decode(&a); err != nil {
		return a, fmt.Errorf("no answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// order has the program do something.
func (b *otherBuild) order(o packetsOrder) (packetRound, error) {
	if err := b.in.Encode(o); err != nil {
		return packetRound{}, b.failed(err)
	}
	a, err := b.answer()
	if err != nil {
		return packetRound{}, b.failed(err)
	}
	return a.Round, nil
}

func (b *otherBuild) open(i int, c packetCase) error {
	_, err := b.order(packetsOrder{Site: i, Open: &c})
	return err
}

func (b *otherBuild) round(i int, path string) (packetRound, error) {
	return b.order(packetsOrder{Site: i, Path: path})
}

func (b *otherBuild) closeAll() error {
	_, err := b.order(packetsOrder{})
	return err
}

// stop ends the program.
func (b *otherBuild) stop() error {
	err := b.orders.Close()
	if ended := b.cmd.Wait(); ended != nil {
		err = errors.Join(err, b.failed(ended))
	}
	return err
}
