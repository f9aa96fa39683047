// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Findings about what was answered: was it what one wanted to measure?

// failed counts what went wrong after the client had begun.
func failed(r *Result) int64 { return r.lost() - notBegun(r) - r.Errors["length"] }

func sayFailed(about, all []*Result) string {
	each := ""
	if len(about) > 1 {
		each = " each"
	}
	counted := ""
	if slices.ContainsFunc(about, func(r *Result) bool { return r.Tool == Siege }) {
		counted = " siege counts replies with an error status among them."
	}
	return fmt.Sprintf("%s had %s failures%s (in all %s); what was never answered is in no response time, which looks the better for it."+counted,
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return float64(failed(r)) }), each,
		perCause(about, append([]string{"length"}, clientLimits...)))
}

func sayLength(about, all []*Result) string {
	return fmt.Sprintf("%s counted %s replies as failed only because their length was not the first one's: "+
		"a page that changes does that without failing (ab -l accepts it).",
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return float64(r.Errors["length"]) }))
}

func nothingReceived(r *Result) bool {
	return r.Tool == AB && r.Replies > 0 && r.Received != nil && *r.Received == 0
}

func sayNothingReceived(about, all []*Result) string {
	return fmt.Sprintf("%s received no byte in %s \"complete\" requests: ab counts a connection that is closed without an answer as complete, "+
		"so its rate is that of failures.", subject(about, all), span(about, "%.0f", func(r *Result) float64 { return float64(r.Replies) }))
}

// notOK counts replies that were no plain success, as far as the tool tells.
func notOK(r *Result) (n int64) {
	for class, count := range r.Statuses {
		if !strings.HasPrefix(class, "2xx") {
			n += count
		}
	}
	if len(r.Statuses) == 0 && r.Successes != nil {
		return max(0, r.Replies-*r.Successes) // siege counts error pages as neither successful nor failed
	}
	return n
}

func sayStatus(about, all []*Result) string {
	classes := map[string]int64{}
	var replies, bad int64
	for _, r := range about {
		replies, bad = replies+r.Replies, bad+notOK(r)
		for class, n := range r.Statuses {
			if n > 0 {
				classes[class] += n
			}
		}
	}
	kinds := slices.Sorted(maps.Keys(classes))
	switch {
	case len(kinds) == 1 && kinds[0] == "3xx":
		return fmt.Sprintf("%s got 3xx replies only (%d): a redirect was measured, which the server answers without the page behind it.",
			subject(about, all), replies)
	case bad == replies:
		return fmt.Sprintf("%s got no success (2xx) among %d replies: an error page or a redirect was measured, not the page.", subject(about, all), replies)
	}
	var parts []string
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%s %d", k, classes[k]))
	}
	detail := ""
	if len(parts) > 0 {
		detail = " (" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("%s got %d of %d replies that were no success%s: they are in the rate and in the response time as if they were the page.",
		subject(about, all), bad, replies, detail)
}

// reuse is how many replies a connection carried on average, as far as is
// known.
func reuse(r *Result) float64 {
	switch {
	case r.KeptAlive != nil && *r.KeptAlive > 0 && r.Asked.Concurrency != nil:
		return float64(r.Replies) / float64(max(1, r.Replies-*r.KeptAlive+*r.Asked.Concurrency))
	case r.Tool == Wrk && r.Asked.Concurrency != nil && *r.Asked.Concurrency > 0:
		return float64(r.Replies) / float64(*r.Asked.Concurrency)
	case r.Connections != nil && *r.Connections > 0 && r.Requests != nil:
		return float64(*r.Requests) / float64(*r.Connections)
	}
	return 0
}

func sayKeptAlive(about, all []*Result) string {
	return fmt.Sprintf("%s asked more than once on a connection (up to about %s requests each, if the server keeps it open): "+
		"a balancer below HTTP chooses a server once for each connection, so its choices are fewer than the replies.",
		subject(about, all), span(about, "%.0f", reuse))
}
