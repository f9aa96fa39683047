// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
)

// messageLimit is how long the file may become before it is emptied.
const messageLimit = 1 << 20

// messages is the file of HAProxy's messages.
type messages struct {
	path string
	at   int64 // read up to here
	part string
	log  *slog.Logger
}

// logged is how far an earlier supervisor, or program of this one, has copied the file.
func logged(dir string) int64 {
	var s Status
	text, err := os.ReadFile(StateFile(dir))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return 0
	}
	return s.Logged
}

// copy logs what is new, and returns it.
func (m *messages) copy() string {
	f, err := os.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < m.at {
		m.at = 0 // it was emptied
	}
	text, err := io.ReadAll(io.NewSectionReader(f, m.at, messageLimit))
	if err != nil {
		return ""
	}
	m.at += int64(len(text))
	if m.at >= messageLimit && f.Truncate(0) == nil {
		m.at = 0 // HAProxy appends
	}
	whole := m.part + string(text)
	end := strings.LastIndexByte(whole, '\n') + 1
	m.part = whole[end:]
	for line := range strings.Lines(whole[:end]) {
		m.write(strings.TrimSpace(line))
	}
	return whole[:end]
}

// write logs a line under the level that HAProxy gives it.
func (m *messages) write(line string) {
	level := slog.LevelInfo
	switch {
	case line == "":
		return
	case strings.HasPrefix(line, "[ALERT]"):
		level = slog.LevelError
	case strings.HasPrefix(line, "[WARNING]") && !strings.Contains(line, " stopped (cumulated conns:"):
		level = slog.LevelWarn
	case strings.HasPrefix(line, "[WARNING]"):
		level = slog.LevelDebug // one for each proxy at each reload
	}
	m.log.Log(context.Background(), level, "HAProxy: "+line)
}
