// SPDX-License-Identifier: Apache-2.0

package daemon

// yields reports whether this director leaves the addresses to its peer, which sees more
// servers up.
func (d *Daemon) yields() bool { return d.pair.yields }

// yieldsDecided reports whether that is known since the daemon began. What it reported before it
// was restarted holds until then.
func (d *Daemon) yieldsDecided() bool { return d.pair.config == nil || d.pair.yield.Decided() }
