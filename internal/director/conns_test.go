// SPDX-License-Identifier: Apache-2.0

package director

import (
	"imbang/internal/model"
)

// collected is the whole connection table, for tests that look at it at once.
func collected(d *Director) (all []model.Connection, err error) {
	for c, err := range d.Connections(ConnectionFilter{}) {
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}
