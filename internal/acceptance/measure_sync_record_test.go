// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"testing"

	"imbang/internal/lab/stats"
)

// syncResult is the content of the file.
type syncResult struct {
	Environment measuredOn `json:"environment"`
	Cases       []syncRow  `json:"cases"`
	// Off compares the data plane without synchronization with that of a build before it.
	Off []packetsChange `json:"switched_off"`
}

// share is an estimate of the median with its interval of 95 %.
type share struct {
	stats.Summary
	Interval stats.Interval `json:"interval"`
}

func shareOf(list []float64) share {
	return share{stats.Summarize(list), stats.MedianInterval(list, 0.95)}
}

// syncRow is a case. Shares of CPU time are in percent.
type syncRow struct {
	Name    string  `json:"name"`
	Load    string  `json:"load"`
	Commit  string  `json:"commit"`
	Rate    int     `json:"connections_per_second"`
	Each    int     `json:"packets_per_connection"`
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"` // of a round
	// Of one core.
	Master   share `json:"master_percent"`           // the director's work on packets, and its process
	Packets  share `json:"packets_percent"`          // of this, the work on packets
	Process  share `json:"process_percent"`          // of this, the process
	Extra    share `json:"extra_percent"`            // more than without synchronization in the same round
	Machine  share `json:"machine_percent"`          // the whole machine less the backup's process
	MExtra   share `json:"machine_extra_percent"`    // likewise more than without synchronization
	Backup   share `json:"backup_percent"`           // the backup's process
	PExtra   share `json:"packets_extra_percent"`    // the part of Extra that packets have
	Relative share `json:"extra_relative_percent"`   // Extra of the master without synchronization
	OfWhole  share `json:"machine_relative_percent"` // MExtra of the machine without synchronization
	// Of all rounds together, but for entries.
	Opened      uint64        `json:"opened"`
	Undelivered uint64        `json:"packets_undelivered"`
	Late        float64       `json:"generator_late_ms"`
	Stored      stats.Summary `json:"master_entries"`
	Copied      stats.Summary `json:"backup_entries"`
	Unequal     int           `json:"unequal"`
	Lost        uint64        `json:"lost"`
	Refused     uint64        `json:"refused"`
	Entries     float64       `json:"entries_per_connection"`
	Deletions   float64       `json:"deletions_per_connection"`
	Datagrams   uint64        `json:"datagrams"`
	Repeated    uint64        `json:"datagrams_repeated"`
}

func summarizeSync(load string, cases []syncCase, all [][]syncSample) (rows []syncRow) {
	index := map[string]int{}
	for i, c := range cases {
		index[c.name] = i
	}
	bare, off := all[index[syncBare]], all[index[syncOff]]
	for i, c := range cases {
		if c.name == syncBare {
			continue
		}
		row := syncRow{Name: c.name, Load: load, Rate: *syncRate, Each: len(life), Rounds: len(all[i]), Seconds: syncFor.Seconds()}
		var master, packets, process, extra, pextra, machine, mextra, backup, relative, whole, stored, copied []float64
		var entries, deletions uint64
		for round, s := range all[i] {
			own := s.packets - bare[round].packets
			base := off[round].packets - bare[round].packets + off[round].process
			more, mmore := own+s.process-base, s.machine-off[round].machine
			master, packets, process, extra = append(master, 100*(own+s.process)), append(packets, 100*own), append(process, 100*s.process), append(extra, 100*more)
			pextra = append(pextra, 100*(s.packets-off[round].packets))
			machine, mextra, backup = append(machine, 100*s.machine), append(mextra, 100*mmore), append(backup, 100*s.backup)
			relative, whole = append(relative, 100*more/base), append(whole, 100*mmore/off[round].machine)
			stored, copied = append(stored, float64(s.stored)), append(copied, float64(s.copied))
			row.Opened += s.opened
			row.Undelivered += s.undelivered
			row.Late = max(row.Late, s.late.Seconds()*1000)
			row.Unequal += s.unequal
			row.Lost += s.lost
			row.Refused += s.refused
			row.Datagrams += s.datagrams
			row.Repeated += s.repeated
			entries += s.entries
			deletions += s.deletions
		}
		row.Master, row.Packets, row.Process, row.Extra = shareOf(master), shareOf(packets), shareOf(process), shareOf(extra)
		row.Machine, row.MExtra, row.Backup = shareOf(machine), shareOf(mextra), shareOf(backup)
		row.PExtra = shareOf(pextra)
		row.Relative, row.OfWhole = shareOf(relative), shareOf(whole)
		row.Stored, row.Copied = stats.Summarize(stored), stats.Summarize(copied)
		row.Entries, row.Deletions = float64(entries)/float64(row.Opened), float64(deletions)/float64(row.Opened)
		rows = append(rows, row)
	}
	return rows
}

// noteSync puts a measurement into the file, if there is to be one.
func noteSync(t *testing.T, put func(all *syncResult, commit string)) {
	t.Helper()
	keep(t, *syncMeasures, func(all *syncResult) *measuredOn { return &all.Environment }, put)
}
