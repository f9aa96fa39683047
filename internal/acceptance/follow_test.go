// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"syscall"
	"testing"

	"imbang/internal/lab/topology"
)

// followers are how many `imbang status` knows of.
func (f *farm) followers() int {
	f.t.Helper()
	var st struct{ Followers int }
	if err := json.Unmarshal([]byte(must(f.t, f.Director, "", "status", "-o", "json")), &st); err != nil {
		f.t.Fatal(err)
	}
	return st.Followers
}

// A visit's connection is reported from its opening on, in text and as JSON; a command
// that is killed ends with its lease.
func TestConnsFollow(t *testing.T) {
	const begun = "following connections, until Ctrl-C"
	f := newTracedFarm(t)
	vip := f.Virtual(topology.IPv4).String()
	text := startTelling(t, f, begun, "conns", "--follow", "--service", vip+":80")
	objects := startTelling(t, f, begun, "conns", "-f", "--event", "open", "-o", "json")
	elsewhere := startTelling(t, f, begun, "conns", "-f", "--service", vip+":81")
	if n := f.followers(); n != 3 {
		t.Errorf("%d followers", n)
	}
	f.visit(t)
	const end = ` -> 172\.16\.0\.\d+:80 Masq `
	connection := `\d\d:\d\d:\d\d\.\d\d\d %-5s 10\.10\.\d+\.\d+:\d+ > ` + regexp.QuoteMeta(vip) + `:80/tcp` + end
	text.want(fmt.Sprintf(connection, "open") + `SYN_RECV, expires in \d+\.\d s`)
	text.want(fmt.Sprintf(connection, "state") + `ESTABLISHED \(was SYN_RECV\), expires in \d+\.\d s`)
	var e struct{ Event, Client, Virtual, Server, State string }
	if err := json.Unmarshal([]byte(objects.line()), &e); err != nil {
		t.Fatal(err)
	}
	if e.Event != "open" || e.Virtual != vip+":80" || e.State != "SYN_RECV" || e.Client == "" || e.Server == "" {
		t.Errorf("%+v", e)
	}
	if status := text.end(syscall.SIGINT); status != 0 {
		t.Errorf("Ctrl-C: status %d, said %s", status, text.stderr.String())
	}
	if status := objects.end(syscall.SIGKILL); status != -1 {
		t.Errorf("killed: status %d", status)
	}
	select {
	case line := <-elsewhere.lines:
		t.Errorf("reported of another service: %s", line)
	default:
	}
	if status := elsewhere.end(syscall.SIGTERM); status != 0 {
		t.Errorf("SIGTERM: status %d, said %s", status, elsewhere.stderr.String())
	}
	await(t, "the killed follower's lease ends", func() error {
		if n := f.followers(); n != 0 {
			return fmt.Errorf("%d followers", n)
		}
		return nil
	})
	if o := imbang(t, f.Director, "", "conns", "--follow", "--event", "boredom"); o.status != 2 || !regexp.MustCompile(`unknown kind of event "boredom" \(open, state, close\)`).MatchString(o.stderr) {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
}
