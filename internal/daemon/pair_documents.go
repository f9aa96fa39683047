// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/pair"
	"imbang/internal/daemon/plan"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/readfile"
)

// compareDocuments compares the applied configuration with the peer's, if one of the two is
// another one than before.
func (d *Daemon) compareDocuments(peer *pair.Peer) {
	p := &d.pair
	theirs := peer.State.Configuration
	if theirs == "" || p.compared == [2]string{p.digest, theirs} {
		return
	}
	if theirs == p.digest {
		p.compared, p.differences, p.same = [2]string{p.digest, theirs}, nil, new(true)
		return
	}
	if peer.Configuration != theirs {
		return // it is being fetched
	}
	ours, err := config.DecodeDocument(p.document)
	if err != nil {
		return // setDocument has raised an alarm
	}
	document, err := config.DecodeDocument(peer.Document)
	if err != nil {
		d.raise(alarmPair, err.Error())
		return
	}
	p.compared = [2]string{p.digest, theirs}
	p.differences = config.SharedRules().Differences(ours, document)
	p.same = new(len(p.differences) == 0)
	d.clear(alarmPair)
}

// watchDocuments raises the alarm of configurations that differ for some time.
func (d *Daemon) watchDocuments(now time.Time) {
	p := &d.pair
	all := slices.Concat(p.differences, p.others)
	if len(all) == 0 {
		p.differ = time.Time{}
		d.clear(alarmPairConfiguration)
		return
	}
	if p.differ.IsZero() {
		p.differ = now
	}
	if now.Sub(p.differ) < pairDifferAfter {
		return
	}
	const shown = 3
	var words []string
	for _, one := range all[:min(len(all), shown)] {
		words = append(words, one.String())
	}
	if more := len(all) - shown; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	d.raise(alarmPairConfiguration, fmt.Sprintf("the configuration of the director %s differs: %s (imbang peer diff)", p.config.Peer, strings.Join(words, "; ")))
}

// errNoPair refuses what is about a peer.
var errNoPair = errors.New("no pair is configured: write the section pair into the configuration, as docs/how-to/pair.md says")

// Differences implements api.Daemon.
func (d *Daemon) Differences() (out *api.Differences, err error) {
	err = d.do(func() error {
		link, err := d.linkOf()
		if err != nil {
			return err
		}
		peer := link.Peer()
		if d.pair.same == nil {
			return api.Conflict(fmt.Errorf("the configuration of the director %s is not known yet: %s", d.pair.config.Peer, whyUnknown(&peer)))
		}
		out = &api.Differences{Peer: d.pair.config.Peer.String(), Reached: peer.Reached(time.Now()), Differences: []api.Difference{}}
		for _, one := range slices.Concat(d.pair.differences, d.pair.others) {
			out.Differences = append(out.Differences, api.Difference(one))
		}
		return nil
	})
	return out, err
}

func whyUnknown(p *pair.Peer) string {
	if p.Err != nil {
		return oneLine(p.Err)
	}
	return "it has not replied yet: try again in a moment"
}

// linkOf is the link, if there is one.
func (d *Daemon) linkOf() (*pair.Link, error) {
	switch {
	case d.pair.config == nil:
		return nil, api.Conflict(errNoPair)
	case d.pair.link == nil:
		return nil, api.Conflict(errors.New("the link to the other director could not be made: imbang status says why"))
	}
	return d.pair.link, nil
}

// PeerPlan implements api.Daemon.
func (d *Daemon) PeerPlan(ctx context.Context, by api.Caller, q api.PeerRequest) (*api.PeerPlan, error) {
	return d.askPeer(ctx, false, by, q)
}

// PeerPush implements api.Daemon.
func (d *Daemon) PeerPush(ctx context.Context, by api.Caller, q api.PeerRequest) (*api.PeerPlan, error) {
	if q.Base == "" {
		return nil, api.Conflict(errors.New("base: missing: want that of the plan which is to be applied"))
	}
	return d.askPeer(ctx, true, by, q)
}

// askPeer waits for the peer outside of the loop.
func (d *Daemon) askPeer(ctx context.Context, push bool, by api.Caller, q api.PeerRequest) (*api.PeerPlan, error) {
	var link *pair.Link
	var c pair.Config
	var notes []string
	request := pair.Request{Base: q.Base, Force: q.Force, By: by.Name}
	err := d.do(func() (err error) {
		if link, err = d.linkOf(); err != nil {
			return err
		}
		if request.Certificates, notes, err = d.layer7.prints.offered(d.core.Config, push); err != nil {
			return api.Conflict(err)
		}
		c = *d.pair.config
		request.Document = d.pair.document
		return d.isApplied("")
	})
	if err != nil {
		return nil, err
	}
	p, err := link.Ask(ctx, push, request)
	if err != nil {
		return nil, api.Conflict(fmt.Errorf("director %s: %w", c.Peer, err))
	}
	return &api.PeerPlan{Peer: c.Peer.String(), File: p.File, Base: p.Base, Changes: p.Changes, Summary: p.Summary, Notes: append(p.Notes, notes...)}, nil
}

// isApplied refuses to go on if the files have another configuration than the one that is
// applied. whose stands before their name.
func (d *Daemon) isApplied(whose string) error {
	now, err := config.Load(d.File)
	if err != nil {
		return api.Conflict(fmt.Errorf("%s%s is not valid: correct it first: %s", whose, d.File, public(err)))
	}
	if !bytes.Equal(now.Document, d.core.Config.Document) {
		where := ""
		if whose != "" {
			where = " there"
		}
		return api.Conflict(fmt.Errorf("%s%s has changed since it was applied: run imbang reload%s, or undo the change", whose, d.File, where))
	}
	return nil
}

// offered is a configuration that the peer offers.
type offered struct {
	config *config.Config
	text   []byte
	plan   *pair.Plan
	same   bool               // the file has it already
	files  []pair.Certificate // that this director does not have
}

// offer makes this director's configuration of the peer's, and plans it. Nothing is changed.
func (d *Daemon) offer(q pair.Request) (*offered, error) {
	theirs, err := config.DecodeDocument(q.Document)
	if err != nil {
		return nil, err
	}
	if err := d.isApplied("its file "); err != nil {
		return nil, err
	}
	own := d.core.Config
	mine, err := config.DecodeDocument(own.Document)
	if err != nil {
		return nil, err
	}
	merged, err := config.SharedRules().Merge(theirs, mine)
	if err != nil {
		return nil, err
	}
	out := &offered{same: reflect.DeepEqual(merged, mine)}
	if out.text, err = config.Render(merged); err != nil {
		return nil, err
	}
	if out.config, err = config.Parse(d.File, out.text); err != nil {
		return nil, fmt.Errorf("the configuration does not apply there: %w", err)
	}
	if out.config.Pair == nil {
		return nil, errors.New("the configuration would remove the section pair there: nothing is changed")
	}
	if _, err := makeCheckers(out.config); err != nil {
		return nil, fmt.Errorf("the configuration does not apply there: %w", err)
	}
	if !q.Force {
		if err := d.devicesExist(out.config); err != nil {
			return nil, err
		}
	}
	if out.files, err = wantedFiles(out.config, q.Certificates); err != nil {
		return nil, err
	}
	_, o, err := d.observe()
	if err != nil {
		return nil, err
	}
	next, _ := d.core.Reload(out.config, time.Now())
	p := plan.Make(next.Wanted(), d.applied, o)
	if err := d.allowed(out.config, p, layer7Of(d.core.Config), q.Force); err != nil {
		return nil, err
	}
	base, err := filesDigest(own.Files)
	if err != nil {
		return nil, err
	}
	out.describe(d, p, own, base)
	return out, nil
}

func (o *offered) describe(d *Daemon, p *plan.Plan, own *config.Config, base string) {
	planned := planned(p, d.hostChanges(o.config))
	o.plan = &pair.Plan{Base: base, File: d.File, Changes: planned.Changes, Summary: planned.Summary}
	if file, err := filepath.Abs(d.File); err == nil {
		o.plan.File = file
	}
	sum := sha256.New()
	for _, one := range o.files {
		o.plan.Changes = append(o.plan.Changes, fmt.Sprintf("write file %s: %s, here %s", one.Path, one.Print, one.Had))
		fmt.Fprintf(sum, "%s\n%s\n%s\n", one.Path, one.Print, one.Had)
	}
	if n := len(o.files); n > 0 {
		o.plan.Base += hex.EncodeToString(sum.Sum(nil)[:8])
		o.plan.Summary += fmt.Sprintf(", %d files with certificates written", n)
	}
	if o.same {
		o.plan.Notes = append(o.plan.Notes, "the file has this configuration already, and stays as it is")
		return
	}
	o.plan.Notes = append(o.plan.Notes, "the file is written anew, without comments; "+o.plan.File+before+" has the former one")
	if n := len(own.Files) - 1; n > 0 {
		o.plan.Notes = append(o.plan.Notes, fmt.Sprintf("services and checks of the %d files that it includes are written into it, and these are not read any more", n))
	}
	if !sameSection(own.VRRP, o.config.VRRP) {
		o.plan.Notes = append(o.plan.Notes, "the section vrrp changes: imbang vrrp applies it when it is reloaded there (systemctl reload imbang-vrrp)")
	}
}

// sameSection compares what imbang vrrp does by its section: not the list of all servers.
func sameSection(a, b *setup.Setup) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, other := *a, *b
	one.Servers, other.Servers = nil, nil
	return reflect.DeepEqual(one, other)
}

// filesDigest identifies the texts of files.
func filesDigest(paths []string) (string, error) {
	sum := sha256.New()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", path, len(text))
		_, _ = sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// before is appended to the name of the file that a push replaces.
const before = ".before"

// apply writes a configuration that the peer pushed, and applies it. One that does not apply
// is replaced by the former file.
func (d *Daemon) apply(q pair.Request) (*pair.Plan, error) {
	o, err := d.offer(q)
	switch {
	case err != nil:
		return nil, err
	case o.plan.Base != q.Base:
		return nil, fmt.Errorf("its file %s, or a file with certificates, has changed since the plan: look at the plan again (imbang peer push)", o.plan.File)
	}
	undo, err := writeCertificates(o.files)
	if err != nil {
		return nil, err
	}
	for _, one := range o.files {
		d.note(events.Event{Kind: events.Changed, Text: fmt.Sprintf("wrote file %s of the director %s: %s", one.Path, d.pair.config.Peer.Addr(), one.Print), By: events.Printable(q.By)})
	}
	d.layer7.prints.look(o.config)
	if o.same {
		d.publish(time.Now())
		return o.plan, nil
	}
	former, err := replaceFile(d.File, o.text)
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	_, _, err = d.reload(nil, q.Force, fmt.Sprintf("%s on the director %s", events.Printable(q.By), d.pair.config.Peer.Addr()))
	if err == nil || errors.As(err, new(*incomplete)) {
		return o.plan, err
	}
	if failed := undo(); failed != nil {
		err = fmt.Errorf("%w; files with certificates are not as they were: %w", err, failed)
	}
	if failed := rewriteFile(d.File, former); failed != nil {
		return nil, fmt.Errorf("%w; the former file could not be written back, copy %s: %w", err, o.plan.File+before, failed)
	}
	d.read = d.read.Again()
	return nil, fmt.Errorf("the configuration does not apply there, and the former file is back: %w", err)
}

// replaceFile writes a file whole or not at all, with the owner and mode of the one that it
// replaces, which gets another name. It returns the former text.
func replaceFile(path string, text []byte) (former []byte, err error) {
	p, err := readfile.Find(path, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	former, info, err := p.Read(maxDocument)
	if err != nil {
		return nil, err
	}
	if err := p.Beside(p.Name()+before).Write(former, like(info)); err != nil {
		return nil, err
	}
	return former, p.Write(text, like(info))
}

// rewriteFile is replaceFile, but keeps nothing: the text that was to replace the former one does not
// take its place under the other name.
func rewriteFile(path string, text []byte) (err error) {
	p, err := readfile.Find(path, false)
	if err != nil {
		return err
	}
	defer p.Close()
	_, info, err := p.Read(maxDocument)
	if err != nil {
		return err
	}
	return p.Write(text, like(info))
}

// maxDocument bounds a configuration file [bytes], far beyond what package config reads.
const maxDocument = 1 << 30

// like gives a file the owner and mode of another one.
func like(other fs.FileInfo) func(*os.File) error {
	return func(f *os.File) (err error) {
		if sys, is := other.Sys().(*syscall.Stat_t); is {
			err = f.Chown(int(sys.Uid), int(sys.Gid))
		}
		return errors.Join(err, f.Chmod(other.Mode().Perm()))
	}
}

// peerHandler answers the peer.
type peerHandler struct{ *Daemon }

// Document implements pair.Handler.
func (h peerHandler) Document() (text []byte, err error) {
	err = h.do(func() error {
		if text = h.pair.document; text == nil {
			return errors.New("there is no configuration to compare")
		}
		return nil
	})
	return text, err
}

// Orders implements pair.Handler.
func (h peerHandler) Orders() (o *pair.Orders, err error) {
	err = h.do(func() error {
		o = &pair.Orders{Now: time.Now(), Digest: h.ledger.Digest()}
		o.Ledger, err = h.ledger.Encode()
		return err
	})
	return o, err
}

// Plan implements pair.Handler.
func (h peerHandler) Plan(q pair.Request) (p *pair.Plan, err error) {
	err = h.do(func() error {
		o, err := h.offer(q)
		if err == nil {
			p = o.plan
		}
		return err
	})
	return p, err
}

// Push implements pair.Handler. It waits until the push is done: one that replaces the link
// itself would wait for its own end in the loop.
func (h peerHandler) Push(q pair.Request) (p *pair.Plan, err error) {
	err = h.do(func() error {
		p, err = h.apply(q)
		return err
	})
	return p, err
}
