// SPDX-License-Identifier: Apache-2.0

package director

// AuditKind is a kind of fault that Audit finds.
type AuditKind uint8

// The kinds of faults. Why a healthy table cannot show one in two passes is said
// of each in the table below; "grace period" is the wait between two passes, after
// which every program that was under way before has ended.
const (
	AuditUnreached AuditKind = iota
	AuditDead
	AuditOverdue
	AuditClockStopped
	AuditSlotStray
	AuditClaimed
	AuditLineFree
	AuditLineLeaked
	AuditCounts
	AuditCountsMoving
	AuditUnproven
	AuditControlled
	AuditRepliesStray
	AuditRepliesMissing
	AuditCallStray
	AuditConnServer
	AuditServerUnlisted
	AuditOrderServer
	AuditExtentsOverlap
	AuditServiceCheck
	AuditServiceID
	AuditReplyOwner
	AuditReplyOwnerMissing
	AuditServerWeight
	AuditBucketsStale
	AuditMaglevStale
	AuditLocalityStale
	AuditStateStale
	AuditTreeStale
	AuditTreeNode
	auditKinds
)

// auditKindInfo is what there is to say of a kind.
type auditKindInfo struct {
	name   string // in JSON
	text   string // of an object, in the table
	repair string // what --repair does; "" if nothing
	sound  string // why a healthy table does not show it in two passes
}

const edits = "no edit was under way in either pass (the generation was even, and the same before and behind the reading), and a finished edit leaves none"

var auditInfo = [auditKinds]auditKindInfo{
	AuditUnreached: {"unreached", "entry that its bucket does not lead to: packets do not find it, and it never ends", "puts it into its bucket",
		"in each pass the bucket was not claimed, and its control word was the same before and after it was read with the entry's line; entries enter and leave a bucket under its claim, which changes that word"},
	AuditDead: {"dead", "connection that was marked as dead and never removed", "removes it",
		"a program that marks a connection removes it in the same run, which ends within the grace period, or leaves it to the sweep, and then it is not judged; the entry has the same incarnation in both passes"},
	AuditOverdue: {"overdue", "connection long past its time", "",
		"the sweep comes by each entry within a second; the limit is ten"},
	AuditClockStopped: {"clock-stopped", "the table's clock stands still: nothing expires", "starts it",
		"the clock is 10 s or more behind and did not move between the passes"},
	AuditSlotStray: {"slot-stray", "slot of a bucket that leads to no entry of it", "empties it",
		"likewise; an entry has its line, its flow's hash and its index while a bucket leads to it"},
	AuditClaimed: {"claimed", "bucket that a program has claimed and not left: its flows cannot be opened", "ends the claim",
		"each claim that ends changes the control word, which is the same in both passes, and a program ends within the grace period"},
	AuditLineFree: {"line-free", "entry whose line counts as free", "takes the line",
		"likewise; a line is taken before a bucket leads to its entry, and is given back after the entry has left the bucket"},
	AuditLineLeaked: {"line-leaked", "line in use that has no entry", "gives it back",
		"a program that takes a line writes its entry in the same run; the incarnation is the same in both passes"},
	AuditCounts: {"counts", "server's counts differ from the connections there are", "adds the difference",
		"in both passes the server has the same connections (entry, incarnation and flow, as a sum of hashes) in the same activity, and the same counts, read before and behind them; by its counter it opened none meanwhile; no program of the first pass is under way in the second"},
	AuditCountsMoving: {"counts-moving", "server's count differs from the connections there are, while they come and go", "",
		"connections that came and went while they were counted bound the difference (connections opened, by the server's counter, and the change of the count); the bounds of both passes exclude 0"},
	AuditUnproven: {"unproven", "server's count of unproven entries differs from those there are", "adds the difference",
		"in both passes the server has the same unproven entries, and the same count of them, read before and behind them; it opened no connection meanwhile: likewise"},
	AuditControlled: {"controlled", "template's count differs from the connections that it controls", "adds the difference",
		"in both passes the template has the same count and the same connections; a count that is too high is so in each of 64 looks afterwards, while packets under way hold a template for microseconds; and four times more, it is on the same side of the connections there are, both before and behind counting them"},
	AuditRepliesStray: {"replies-stray", "entry of replies whose connection is gone, or has another", "removes it",
		"a connection is entered before the entry of its replies and removed behind it, and that is replaced, by one run of a program; the incarnation is the same in both passes"},
	AuditRepliesMissing: {"replies-missing", "connection that is said to have an entry of its replies, and has none", "enters it; a hairpin gets another port",
		"likewise; a connection whose replies become a later one's is not said to have any more by the same run"},
	AuditCallStray: {"call-stray", "call of a persistence engine without its template, or a number without one", "deletes it",
		"likewise: a template is inserted before the number of its call and that before the call, and they are removed in the opposite order"},
	AuditConnServer: {"connection-server", "connection of a server that there is not", "removes it",
		"a server's id stays while it has connections; ids in use only grow"},
	AuditServerUnlisted: {"server-unlisted", "server that is marked as available and in no list", "clears the mark", edits},
	AuditOrderServer:    {"order-server", "server in a service's list that is not available, unknown or another service's", "takes it out of the list", edits},
	AuditExtentsOverlap: {"extents-overlap", "services whose lists of servers overlap", "gives one of them another place", edits},
	AuditServiceCheck:   {"service-check", "service whose sum is wrong: packets do not use it", "writes it anew", edits},
	AuditServiceID:      {"service-id", "service whose id is unknown or another service's, too", "", edits},
	AuditReplyOwner:     {"reply-owner", "address and port whose replies are of a wrong server", "deletes the entry", edits},
	AuditReplyOwnerMissing: {"reply-owner-missing", "server that owns its replies, without the entry that says so",
		"writes the entry", edits},
	AuditServerWeight: {"server-weight", "server whose effective weight is not what its administrative weight and health give",
		"writes the effective weight anew", edits},
	AuditBucketsStale:  {"buckets-stale", "bucket table of a service that is gone or has another scheduler", "deletes it", edits},
	AuditMaglevStale:   {"maglev-stale", "Maglev table of a service that is gone or has another scheduler", "deletes it", edits},
	AuditLocalityStale: {"locality-stale", "cached destination of a service that is gone or has another scheduler", "deletes it", edits},
	AuditStateStale:    {"state-stale", "scheduler's memory of another incarnation of its service", "initialises the scheduler anew", edits},
	AuditTreeStale:     {"tree-stale", "tree of a service that is gone, or of another list or scheduler", "removes or rebuilds it", edits},
	AuditTreeNode: {"tree-node", "node of a tree that does not have the winner of its children", "rebuilds the tree",
		"nobody changed nodes and no load changed while they were read (climbers and loads, before and behind)"},
}

func (k AuditKind) String() string { return auditInfo[k].name }

// Text says what is wrong with an object of this kind.
func (k AuditKind) Text() string { return auditInfo[k].text }

// Repair says what AuditOptions.Repair does; "" if nothing.
func (k AuditKind) Repair() string { return auditInfo[k].repair }

// Sound says why a healthy table does not show the fault in two passes.
func (k AuditKind) Sound() string { return auditInfo[k].sound }

// AuditKinds lists all kinds.
func AuditKinds() []AuditKind {
	all := make([]AuditKind, auditKinds)
	for i := range all {
		all[i] = AuditKind(i)
	}
	return all
}
