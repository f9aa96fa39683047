// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"imbang/internal/director"
)

// eventLine tells an event in one line.
func eventLine(e *director.Event, verbose bool) string {
	line := e.Time.Format("15:04:05.000 ") + packetName(e)
	if story := eventStory(e); story != "" {
		line += ": " + story
	}
	if verbose {
		line += fmt.Sprintf(" [%s, %d bytes]", e.Device, e.Length)
	}
	return line
}

// packetName says whose packet it is, as 10.10.0.2:1234 > 10.20.0.1:80/tcp SYN.
func packetName(e *director.Event) string {
	if !e.Source.IsValid() {
		return "packet on " + e.Device
	}
	from, to := e.Source.String(), e.Destination.String()
	if e.Source.Port() == 0 && e.Destination.Port() == 0 {
		from, to = e.Source.Addr().String(), e.Destination.Addr().String()
	}
	name := fmt.Sprintf("%s > %s/%s", from, to, e.Protocol)
	if e.Flags != "" {
		name += " " + e.Flags
	}
	return name
}

func eventStory(e *director.Event) string {
	var parts []string
	if e.New {
		parts = append(parts, newStory(e))
	} else if e.State != "" {
		parts = append(parts, fmt.Sprintf("%s -> %s (%s)", e.Was, e.State, serverName(e.Server)))
	}
	if e.Reason != "" {
		parts = append(parts, asideStory(e))
	}
	return strings.Join(parts, "; ")
}

func newStory(e *director.Event) string {
	story := "new"
	if e.Outdated {
		story += " in place of an outdated one"
	}
	if e.FoundBy != director.ByAddress && e.Service != "" {
		story += " of " + e.Service
	}
	return story + ", " + choiceStory(e, "chose")
}

// choiceStory says what led to the server; the verb is the scheduler's.
func choiceStory(e *director.Event, verb string) string {
	switch {
	case e.Server == nil:
		return "to a server that is gone"
	case e.By == director.ByTemplate:
		return fmt.Sprintf("the template of %s leads to %s", e.Template, describe(e.Server))
	case e.By != director.ByScheduler:
		return "to " + describe(e.Server) // tracing began behind the choice
	case e.RunnerUp == nil:
		return fmt.Sprintf("%s %s %s, and has no other", e.Scheduler, verb, describe(e.Server))
	}
	return fmt.Sprintf("%s %s %s before %s", e.Scheduler, verb, describe(e.Server), describe(e.RunnerUp))
}

func asideStory(e *director.Event) string {
	story := fmt.Sprintf("%s: %s", verdictWords[e.Verdict], e.Reason)
	switch {
	case e.New:
	case e.Server != nil:
		story += fmt.Sprintf(" (%s)", serverName(e.Server))
	case e.By == director.ByScheduler:
		story += fmt.Sprintf(" (%s)", noneStory(e))
	}
	return story
}

// noneStory says among how many servers a scheduler found none.
func noneStory(e *director.Event) string {
	if e.Servers == 0 {
		return fmt.Sprintf("%s has no servers", e.Service)
	}
	return fmt.Sprintf("%s found none among the %d of %s", e.Scheduler, e.Servers, e.Service)
}

func serverName(c *director.Contender) string {
	if c == nil {
		return "no server"
	}
	return c.Addr.String()
}

func describe(c *director.Contender) string {
	over := ""
	if c.Overloaded {
		over = ", overloaded"
	}
	return fmt.Sprintf("%s (weight %d, %d active, %d inactive%s)", c.Addr, c.Weight, c.Active, c.Inactive, over)
}
