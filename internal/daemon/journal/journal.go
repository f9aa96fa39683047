// SPDX-License-Identifier: Apache-2.0

// Package journal logs to systemd's journal with fields, so that journalctl can select
// by event, service and server: journalctl IMBANG_SERVER=web1.
package journal

import (
	"context"
	"log/slog"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
)

// Identifier is the SYSLOG_IDENTIFIER of all messages.
const Identifier = "imbang"

// Handler is a slog.Handler. The key of an attribute, in capitals and behind IMBANG_, is
// the field's name (systemd.journal-fields(7)).
type Handler struct {
	send   func(message string, p journal.Priority, fields map[string]string) error
	fields map[string]string
}

// New is a handler for the journal, or nil if standard error does not lead there.
func New() *Handler {
	if is, err := journal.StderrIsJournalStream(); err != nil || !is {
		return nil
	}
	return &Handler{send: journal.Send}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	fields := map[string]string{"SYSLOG_IDENTIFIER": Identifier}
	for k, v := range h.fields {
		fields[k] = v
	}
	r.Attrs(func(a slog.Attr) bool {
		fields[field(a.Key)] = a.Value.String()
		return true
	})
	return h.send(r.Message, priority(r.Level), fields)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := &Handler{h.send, map[string]string{}}
	for k, v := range h.fields {
		next.fields[k] = v
	}
	for _, a := range attrs {
		next.fields[field(a.Key)] = a.Value.String()
	}
	return next
}

// WithGroup implements slog.Handler: fields have no groups.
func (h *Handler) WithGroup(string) slog.Handler { return h }

func field(key string) string {
	return "IMBANG_" + strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(key))
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	}
	return journal.PriInfo
}
