// SPDX-License-Identifier: Apache-2.0

package history

// Latest is the run of a part that the page shows: the last whole one.
func Latest(runs []Run, name string) (Part, bool) {
	all := named(runs, name)
	if len(all) == 0 {
		return Part{}, false
	}
	return all[len(all)-1].Part, true
}
