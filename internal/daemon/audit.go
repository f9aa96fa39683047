// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"imbang/internal/director"
)

const alarmAudit = "audit"

// shownFindings are listed in an alarm; imbang audit shows all.
const shownFindings = 3

// audit audits the tables if it is time to: in a goroutine of its own, with a handle of
// its own, since that takes seconds.
func (d *Daemon) audit(ctx context.Context) {
	every := d.core.Config.Daemon.AuditInterval
	if every == 0 {
		d.clear(alarmAudit)
		return
	}
	if d.auditing || time.Since(d.audited) < every {
		return
	}
	d.auditing = true
	go func() {
		text, err := auditOnce(ctx)
		_ = d.do(func() error {
			d.auditing, d.audited = false, time.Now()
			switch {
			case err != nil: // no director, or an upgrade: there are other alarms of that
			case text != "":
				d.raise(alarmAudit, text)
			default:
				d.clear(alarmAudit)
			}
			return nil
		})
	}()
}

// auditOnce returns what is wrong with the tables, "" if nothing is.
func auditOnce(ctx context.Context) (text string, err error) {
	t, err := director.Open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	r, err := t.Audit(ctx, director.AuditOptions{})
	if err != nil || r.Clean() {
		return "", err
	}
	var words []string
	for _, f := range r.Findings[:min(len(r.Findings), shownFindings)] {
		words = append(words, fmt.Sprintf("%s: %s", f.Object, f.Detail))
	}
	return fmt.Sprintf("%d faults in the tables, such as %s (imbang audit lists them, --repair corrects them)", len(r.Findings), strings.Join(words, "; ")), nil
}
