// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"time"

	"imbang/internal/model"
)

// Told is one entry that the synchronization rule selected.
type Told struct {
	Time time.Time
	// Conn is the entry. Timeout is the whole timeout of its state (of a template: its
	// own), Forward of a template its server's method, and Service has the mark.
	Conn model.Connection
	Kind string
}
