// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7/carry"
)

// candidate is a configuration file that was read and checked outside of the loop, which waits neither
// for the one nor for the other.
type candidate struct {
	config  *config.Config
	seen    *config.Seen
	err     error // of reading it
	refused error // by HAProxy
}

// candidate reads and checks a configuration file. It is not called by the loop.
func (d *Daemon) candidate(file string) *candidate {
	d.checking.Lock()
	defer d.checking.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), layer7CheckTime)
	defer cancel()
	go func() {
		select {
		case <-d.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	n := &candidate{}
	n.config, n.seen, n.err = config.LoadSeen(file)
	if n.err == nil && n.config.Layer7 != nil {
		_, n.refused = carry.Check(ctx, d.layer7.dir, "", &n.config.Layer7.Config)
	}
	return n
}

// endCandidates waits for the one that is being checked, whose copies of certificates are removed then.
// There are no others afterwards.
func (d *Daemon) endCandidates() { d.checking.Lock() }

// now is the configuration file as it is now; n is nil if it was not read before. It is called by the
// loop.
func (n *candidate) now(d *Daemon) *candidate {
	if n != nil && n.seen.Again().Equal(n.seen) {
		return n
	}
	n = &candidate{}
	if n.config, n.seen, n.err = config.LoadSeen(d.File); n.err == nil {
		n.refused = d.checkLayer7(n.config)
	}
	return n
}

// reloadLater has the loop reload when the file was checked, unless it is to do so already. It is called
// by the loop.
func (d *Daemon) reloadLater(by string) {
	if d.reloads {
		d.reloadsAgain = true
		return
	}
	d.reloads = true
	go func() {
		n := d.candidate(d.File)
		_ = d.do(func() error {
			_, _, _ = d.reload(n, false, by) // it has been noted
			again := d.reloadsAgain
			d.reloads, d.reloadsAgain = false, false
			if again {
				d.reloadLater(by)
			}
			return nil
		})
	}()
}
