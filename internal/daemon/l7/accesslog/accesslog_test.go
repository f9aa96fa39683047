// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// desk is a writer with its FIFO.
type desk struct {
	testing.TB
	dir, pipe string
	in        *os.File // HAProxy's end
	said      *strings.Builder
	stop      func()
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{TB: t, dir: t.TempDir(), said: &strings.Builder{}}
	d.pipe = filepath.Join(d.dir, "access")
	in, err := Open(d.pipe)
	if err != nil {
		t.Fatal(err)
	}
	d.in = in
	t.Cleanup(func() { d.stop(); in.Close() })
	d.name(`{"a":"` + d.path("a.log") + `","b":"` + d.path("b.log") + `"}`)
	d.start()
	return d
}

func (d *desk) path(name string) string { return filepath.Join(d.dir, name) }

// name has the listeners write to other files, as a reload does: by another file.
func (d *desk) name(text string) {
	d.Helper()
	file := d.path(fmt.Sprintf("names-%d", time.Now().UnixNano()))
	link := d.path("names")
	for _, err := range []error{os.WriteFile(file, []byte(text), 0o600), os.Symlink(file, link+".new"), os.Rename(link+".new", link)} {
		if err != nil {
			d.Fatal(err)
		}
	}
}

func (d *desk) start() {
	d.Helper()
	fifo, err := Open(d.pipe)
	if err != nil {
		d.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w := &Writer{Names: d.path("names"), Log: slog.New(slog.NewTextHandler(d.said, nil))}
	go func() { w.Run(ctx, fifo); close(done) }()
	d.stop = func() { cancel(); <-done }
}

func (d *desk) say(lines string) {
	d.Helper()
	if _, err := d.in.WriteString(lines); err != nil {
		d.Fatal(err)
	}
}

// has waits until a file has a text.
func (d *desk) has(name, want string) {
	d.Helper()
	var got []byte
	for range 3000 {
		if got, _ = os.ReadFile(d.path(name)); string(got) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.Fatalf("%s has %q, want %q", name, got, want)
}

func TestLines(t *testing.T) {
	d := newDesk(t)
	d.say("<6>a one\n<6>b two\n<5>Proxy a stopped.\nwhatever\n<6>\n<6>a three <6>b\n")
	d.has("a.log", "one\nthree <6>b\n")
	d.has("b.log", "two\n")
	d.say("<6>a in two ")
	time.Sleep(2 * holdTime)
	d.say("parts\n")
	d.has("a.log", "one\nthree <6>b\nin two parts\n")
}

// A handshake that fails is no request, and no line that is lost.
func TestConnections(t *testing.T) {
	d := newDesk(t)
	d.say("<6>127.0.0.1:47264 [26/Nov/2026:13:51:34.691] a/1: SSL handshake failure\n<6>2001:db8::1:47264 [26/Nov/2026:13:51:34.691] a/1: Connection closed during SSL handshake\n<6>a one\n")
	d.has("a.log", "one\n")
	d.stop()
	if said := d.said.String(); said != "" {
		t.Errorf("it says %s", said)
	}
}

func TestRotation(t *testing.T) {
	d := newDesk(t)
	d.say("<6>a one\n")
	d.has("a.log", "one\n")
	if err := os.Rename(d.path("a.log"), d.path("a.log.1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(lookTime)
	d.say("<6>a two\n")
	d.has("a.log", "two\n")
	d.has("a.log.1", "one\n")
}

// A reader that comes later, or after another one, writes what has waited.
func TestAnotherReader(t *testing.T) {
	d := newDesk(t)
	d.say("<6>a one\n")
	d.has("a.log", "one\n")
	d.stop()
	for i := range 1000 {
		d.say(fmt.Sprintf("<6>b %d\n", i))
	}
	d.start()
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&want, i)
	}
	d.has("b.log", want.String())
}

// Listeners that a reload brings, and files of other names.
func TestNames(t *testing.T) {
	d := newDesk(t)
	d.say("<6>c one\n<6>a one\n")
	d.has("a.log", "one\n")
	d.name(`{"a":"` + d.path("other.log") + `","c":"` + d.path("c.log") + `"}`)
	time.Sleep(lookTime)
	d.say("<6>c two\n<6>a two\n")
	d.has("c.log", "two\n")
	d.has("other.log", "two\n")
}

func TestUnwritable(t *testing.T) {
	d := newDesk(t)
	d.name(`{"a":"` + d.path("none/a.log") + `","b":"` + d.path("b.log") + `"}`)
	d.say("<6>a one\n<6>b one\n")
	d.has("b.log", "one\n")
	if err := os.Mkdir(d.path("none"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.say("<6>a two\n")
	d.has("none/a.log", "two\n")
	d.stop()
	if !strings.Contains(d.said.String(), "none/a.log") {
		t.Errorf("it says %q", d.said)
	}
	d.start()
}
