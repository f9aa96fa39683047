// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbang/internal/daemon/api"
)

// Metrics of imbang's own protocol between directors.
var (
	replUp         = metric{"imbang_sync_replication_up", "1 if the role of imbang's own protocol runs.", prometheus.GaugeValue, syncRole}
	replSynced     = metric{"imbang_sync_replication_synced", "1 if a backup has the master's whole table; of a master, if there are backups and all of them have.", prometheus.GaugeValue, syncRole}
	replReceivers  = metric{"imbang_sync_replication_receivers", "Backups that are registered with the master.", prometheus.GaugeValue, syncRole}
	replBehind     = metric{"imbang_sync_replication_behind_datagrams", "Datagrams that were sent and are not applied; of a master those of the last backup.", prometheus.GaugeValue, syncRole}
	replLast       = metric{"imbang_sync_replication_last_entry_timestamp_seconds", "When an entry or deletion was sent or applied last, in seconds since 1970; 0 if none was.", prometheus.GaugeValue, syncRole}
	replHeard      = metric{"imbang_sync_replication_last_message_timestamp_seconds", "When a datagram of another director was accepted last, in seconds since 1970; 0 if none was.", prometheus.GaugeValue, syncRole}
	replDatagrams  = metric{"imbang_sync_replication_datagrams_total", "Numbered datagrams that were sent or accepted.", prometheus.CounterValue, syncRole}
	replRepeated   = metric{"imbang_sync_replication_repeated_datagrams_total", "Datagrams that were sent again or requested again.", prometheus.CounterValue, syncRole}
	replEntries    = metric{"imbang_sync_replication_entries_total", "Entries that were sent or applied.", prometheus.CounterValue, syncRole}
	replDeletions  = metric{"imbang_sync_replication_deletions_total", "Deletions that were sent or applied.", prometheus.CounterValue, syncRole}
	replRefreshes  = metric{"imbang_sync_replication_refreshes_total", "Entries that were sent because their copies grew old.", prometheus.CounterValue, syncRole}
	replBulks      = metric{"imbang_sync_replication_bulk_transfers_total", "Transfers of the whole table.", prometheus.CounterValue, syncRole}
	replLost       = metric{"imbang_sync_replication_lost_events_total", "Events that the director's ring had no room for.", prometheus.CounterValue, syncRole}
	replLocked     = metric{"imbang_sync_replication_locked_total", "Times that another command had the table locked for too long.", prometheus.CounterValue, syncRole}
	replSwept      = metric{"imbang_sync_replication_swept_entries_total", "Entries that were removed because the master does not have them.", prometheus.CounterValue, syncRole}
	replWaiting    = metric{"imbang_sync_replication_waiting_entries", "Entries that wait for a service, a server or a template.", prometheus.GaugeValue, syncRole}
	replLacking    = metric{"imbang_sync_replication_lacking_entries", "Entries of the master that are not entered, with those for which there is no room to wait; of a master those of all backups.", prometheus.GaugeValue, syncRole}
	replNotEntered = metric{"imbang_sync_replication_not_entered_total", "Entries that the table refused.", prometheus.CounterValue, syncRole}
	replDiffer     = metric{"imbang_sync_replication_differences", "Services and servers that differ from the master's.", prometheus.GaugeValue, syncRole}
	replRefused    = metric{"imbang_sync_replication_refused_total", "Datagrams and records that were not used, by reason.", prometheus.CounterValue, []string{"role", "reason"}}
)

// Metrics of a pair: what came from the other director. Those above are of what was sent.
var (
	replReceivedSynced    = metric{"imbang_sync_replication_received_synced", "Of a pair: 1 if the other director's whole table is here.", prometheus.GaugeValue, syncRole}
	replReceivedBehind    = metric{"imbang_sync_replication_received_behind_datagrams", "Of a pair: datagrams that the other director sent and that are not applied here.", prometheus.GaugeValue, syncRole}
	replReceivedEntries   = metric{"imbang_sync_replication_received_entries_total", "Of a pair: entries of the other director that were applied.", prometheus.CounterValue, syncRole}
	replReceivedDeletions = metric{"imbang_sync_replication_received_deletions_total", "Of a pair: deletions of the other director that were applied.", prometheus.CounterValue, syncRole}
	replReceivedBulks     = metric{"imbang_sync_replication_received_bulk_transfers_total", "Of a pair: transfers of the other director's whole table.", prometheus.CounterValue, syncRole}
	replKept              = metric{"imbang_sync_replication_kept_entries_total", "Of a pair: entries that stayed here, as the other director has them with another server.", prometheus.CounterValue, syncRole}
	replReplaced          = metric{"imbang_sync_replication_replaced_entries_total", "Of a pair: entries with packets in whose place came those of the other director, with another server.", prometheus.CounterValue, syncRole}
)

func (w writer) replication(r *api.Replication) {
	put := func(m metric, n uint64) { w.put(m, float64(n), r.Role) }
	at := func(m metric, t time.Time) {
		seconds := 0.0
		if !t.IsZero() {
			seconds = float64(t.UnixMilli()) / 1e3
		}
		w.put(m, seconds, r.Role)
	}
	w.put(replUp, one(r.State == "running"), r.Role)
	w.put(replSynced, one(r.Synced), r.Role)
	put(replBehind, r.Behind)
	at(replLast, r.Last)
	at(replHeard, r.Heard)
	put(replDatagrams, r.Datagrams)
	put(replRepeated, r.Repeated)
	put(replEntries, r.Entries)
	put(replDeletions, r.Deletions)
	put(replBulks, r.Bulks)
	put(replLacking, r.Lacking)
	put(replLocked, r.Locked)
	if r.Role != "backup" {
		put(replReceivers, uint64(len(r.Receivers)))
		put(replRefreshes, r.Refreshes)
		put(replLost, r.Lost)
	}
	if in := r.Received; in != nil {
		w.put(replReceivedSynced, one(in.Synced), r.Role)
		put(replReceivedBehind, in.Behind)
		put(replReceivedEntries, in.Entries)
		put(replReceivedDeletions, in.Deletions)
		put(replReceivedBulks, in.Bulks)
		put(replKept, in.Kept)
		put(replReplaced, in.Replaced)
	}
	if r.Role == "backup" {
		put(replSwept, r.Swept)
	}
	if r.Role != "master" {
		put(replWaiting, uint64(r.Waiting))
		put(replNotEntered, r.NotEntered)
		put(replDiffer, uint64(len(r.Differences)))
	}
	for _, x := range r.Refused {
		w.put(replRefused, float64(x.Count), r.Role, x.Reason)
	}
}
