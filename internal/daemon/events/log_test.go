// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "events.jsonl")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		for i := range n {
			if _, err := l.Add(Event{Kind: ServerUp, Text: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(3)
	before, after, stop := l.Follow(2)
	if len(before) != 2 || before[0].Number != 2 {
		t.Errorf("%+v", before)
	}
	add(1)
	if e := <-after; e.Number != 4 {
		t.Errorf("%+v", e)
	}
	_, slow, _ := l.Follow(0)
	add(3000)
	n := 0
	for range slow { // it is closed, since it was too slow
		n++
	}
	if n != waiting {
		t.Errorf("%d events for one who is too slow", n)
	}
	stop()
	stop()
	if all := l.Last(5000); len(all) != kept || all[kept-1].Number != 3004 {
		t.Errorf("%d events, the last is %+v", len(all), all[len(all)-1])
	}
	_, end, _ := l.Follow(0)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-end; open {
		t.Error("a follower is not told of the end")
	}
	again, err := Open(path) // another daemon knows what happened before
	if err != nil {
		t.Fatal(err)
	}
	if e, err := again.Add(Event{Text: "next"}); err != nil || e.Number != 3005 {
		t.Errorf("%+v, %v", e, err)
	}
	if all := again.Last(5000); len(all) != kept || all[0].Number != 2006 || all[kept-1].Text != "next" {
		t.Errorf("%d events from %+v", len(all), all[0])
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n = 0; lines.Scan(); n++ {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Number != uint64(n+1) {
			t.Fatalf("line %d: %s, %v", n, lines.Text(), err)
		}
	}
	if n != 3005 {
		t.Errorf("%d lines", n)
	}
}

// A file that has grown is set aside.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(path, []byte(strings.Repeat("\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := l.Add(Event{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 200 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() < maxFile {
		t.Errorf("%v, %v", info, err)
	}
}
