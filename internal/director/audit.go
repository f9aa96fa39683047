// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"fmt"
	"time"

	"imbang/internal/bpfobj"
)

// AuditOptions says how an audit is made. The zero value is what a daemon runs at
// intervals.
type AuditOptions struct {
	Interval time.Duration // between the two passes; 0: DefaultAuditInterval
	Repair   bool
	// Progress is told what is being done, if it is not nil.
	Progress func(step string)
}

// DefaultAuditInterval is the time between the two passes of an audit.
const DefaultAuditInterval = 2 * time.Second

// MaxAuditInterval is the longest interval: a suspect of both passes may be another object if they lie far apart.
const MaxAuditInterval = 30 * time.Second

// maxSuspects is how many objects of a kind are reported, and repaired at once.
const maxSuspects = 1 << 14

// repairRounds is how often an audit repairs and looks again: a list that was cut
// leaves entries behind that the next round finds.
const repairRounds = 4

// AuditReport is what an audit found.
type AuditReport struct {
	Connections uint64         `json:"connections"` // of both families, without templates
	Templates   uint64         `json:"templates"`
	Services    int            `json:"services"`
	Servers     int            `json:"servers"`           // in lists
	Took        Seconds        `json:"took"`              // the whole audit
	Pass        Seconds        `json:"pass"`              // the longest pass
	Rounds      int            `json:"rounds"`            // audits made; above 1 after repairs
	Findings    []AuditFinding `json:"findings"`          // of the first round
	Remaining   []AuditFinding `json:"remaining"`         // of the last one, if something was repaired
	Omitted     map[string]int `json:"omitted,omitempty"` // more findings, by kind
	// NotJudged are parts of the table that were in motion in both passes.
	NotJudged []string `json:"not_judged,omitempty"`
}

// AuditFinding is a fault that held over both passes.
type AuditFinding struct {
	Kind   string `json:"kind"`
	Object string `json:"object"`
	Detail string `json:"detail"`
	Repair string `json:"repair,omitempty"` // "done", or why not; "" if it was not tried
}

// Clean reports whether nothing is wrong (any more).
func (r *AuditReport) Clean() bool {
	if r.Rounds > 1 {
		return len(r.Remaining) == 0
	}
	return len(r.Findings) == 0
}

// suspect is what a pass finds wrong, with all that tells it from another fault:
// the same suspect in both passes is a finding.
type suspect struct {
	kind     AuditKind
	family   uint8
	free     bool // a call is of the table by numbers; a locality is lblcr's
	flow     bpfobj.LbFlow
	place    bpfobj.LbEndpoint
	locality bpfobj.LbLocalityKey
	id       uint32 // of a server or service
	number   uint32 // of an entry, bucket, node, slot
	from     uint32
	tick     uint32
	hash     uint64
	a, b, c  int64
}

// auditPass is what one pass read and suspects.
type auditPass struct {
	suspects map[suspect]struct{}
	perKind  [auditKinds]int
	counts   countsView
	ids      idsView
	edited   bool // an edit was under way: ids and schedulers were not judged
	clock    uint32
	stats    AuditReport
	took     time.Duration
}

func (p *auditPass) report(s suspect) {
	if p.suspects == nil {
		p.suspects = map[suspect]struct{}{}
	}
	if p.perKind[s.kind]++; p.perKind[s.kind] <= maxSuspects {
		p.suspects[s] = struct{}{}
	}
}

// findingsOf are the suspects of both passes, and the counts that both compare.
func findingsOf(one, two *auditPass) (found []suspect, omitted map[string]int) {
	for s := range two.suspects {
		if _, both := one.suspects[s]; both {
			found = append(found, s)
		}
	}
	judgeCounts(&one.counts, &two.counts, func(s suspect) { found = append(found, s) })
	for kind := range auditKinds {
		if n := min(one.perKind[kind], two.perKind[kind]) - maxSuspects; n > 0 {
			if omitted == nil {
				omitted = map[string]int{}
			}
			omitted[kind.String()] = n
		}
	}
	return found, omitted
}

// Audit looks for faults in the kernel's tables. It takes no lock while it looks:
// packets and commands go on. What it finds it found in two passes with a grace
// period between, in which every program and timer that was under way in the first
// has ended; AuditKind.Sound says of each kind why a healthy table does not show it
// twice. With Repair it then takes the lock and corrects what can be, and looks
// again.
func (d *Director) Audit(ctx context.Context, o AuditOptions) (AuditReport, error) {
	began := time.Now()
	if o.Interval == 0 {
		o.Interval = DefaultAuditInterval
	}
	if o.Interval < 0 || o.Interval > MaxAuditInterval {
		return AuditReport{}, fmt.Errorf("interval %v between the passes: want at most %v", o.Interval, MaxAuditInterval)
	}
	report := AuditReport{Findings: []AuditFinding{}}
	if o.Repair {
		// What a killed command left is judged only when it is repaired.
		if err := d.Batch(func() error { return nil }); err != nil {
			return report, err
		}
	}
	for round := 1; ; round++ {
		found, now, err := d.auditRound(ctx, o, round)
		if err != nil {
			return report, err
		}
		if round == 1 {
			report = now
		}
		report.Rounds, report.Pass = round, max(report.Pass, now.Pass)
		results := make([]string, len(found))
		again := o.Repair && len(found) > 0 && round <= repairRounds
		if again {
			if results, again, err = d.repairFindings(found); err != nil {
				return report, err
			}
		}
		names, err := d.auditNames()
		if err != nil {
			return report, err
		}
		findings := make([]AuditFinding, len(found))
		for i, s := range found {
			findings[i] = names.describe(s, results[i])
		}
		sortFindings(findings)
		if round == 1 {
			report.Findings = findings
		} else {
			report.Remaining = findings
		}
		if !again {
			break
		}
	}
	report.Took = Seconds(time.Since(began))
	return report, nil
}

// auditRound makes two passes.
func (d *Director) auditRound(ctx context.Context, o AuditOptions, round int) ([]suspect, AuditReport, error) {
	var passes [2]*auditPass
	for i := range passes {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("round %d, pass %d of 2", round, i+1))
		}
		var err error
		if passes[i], err = d.auditPass(ctx); err != nil {
			return nil, AuditReport{}, err
		}
		if i == 1 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, AuditReport{}, ctx.Err()
		case <-time.After(o.Interval):
		}
		if err := gracePeriod(); err != nil {
			return nil, AuditReport{}, err
		}
	}
	found, omitted := findingsOf(passes[0], passes[1])
	found, err := d.confirmControlled(ctx, found)
	if err != nil {
		return nil, AuditReport{}, err
	}
	report := passes[1].stats
	report.Omitted = omitted
	report.Pass = Seconds(max(passes[0].took, passes[1].took))
	if passes[0].edited || passes[1].edited {
		report.NotJudged = append(report.NotJudged, "services, servers and the schedulers' memory: a command was editing them, or was killed at that (then the next edit repairs them)")
	}
	return found, report, nil
}
