// SPDX-License-Identifier: Apache-2.0

package daemon

// yields reports whether this director leaves the addresses to another one.
func (d *Daemon) yields() bool { return false }
