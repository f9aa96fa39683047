// SPDX-License-Identifier: Apache-2.0

package daemon

// yields reports whether this director leaves the addresses to its peer, which sees more
// servers up.
func (d *Daemon) yields() bool { return d.pair.yields }
