// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A command learns what has become of each group, in whatever order the process says it.
func TestGiveUp(t *testing.T) {
	backup := func(group string) Event { return Event{State: &State{Group: group, State: "backup"}} }
	master := func(group string) Event { return Event{State: &State{Group: group, State: "master"}} }
	moved := func(group string) Event { return Event{Moved: &Moved{Group: group, To: "10.20.0.12", MS: 5}} }
	reply := func(groups ...string) Event { return Event{Reply: &Reply{Groups: groups}} }
	to := func(group string) Move { return Move{Group: group, To: "10.20.0.12", MS: 5} }
	again := func(group string) Move {
		return Move{Group: group, Error: "no other director took over: this one is master again"}
	}
	unknown := Move{Group: "web", Error: "it is not known whether it has moved: imbang vrrp: the process ended the connection"}
	for name, c := range map[string]struct {
		events []Event
		want   []Move
		err    string
	}{
		"two groups":          {[]Event{master("web"), {Await: 1}, reply("web", "mail"), backup("web"), moved("mail"), moved("web")}, []Move{to("mail"), to("web")}, ""},
		"before the reply":    {[]Event{backup("web"), moved("web"), reply("web")}, []Move{to("web")}, ""},
		"nobody is there":     {[]Event{backup("web"), reply("web"), master("web")}, []Move{again("web")}, ""},
		"another group moves": {[]Event{reply("web"), moved("mail"), master("mail"), moved("web")}, []Move{to("web")}, ""},
		"a fault":             {[]Event{reply("web"), {State: &State{Group: "web", State: "fault"}}}, []Move{{Group: "web", Error: "this director is in state fault (imbang vrrp status)"}}, ""},
		"refused":             {[]Event{{Reply: &Reply{Error: "no"}}}, nil, "no"},
		"the process ends":    {[]Event{reply("web")}, []Move{unknown}, ""},
		"it ends at once":     {[]Event{backup("web")}, []Move{unknown}, ""},
		"not master any more": {[]Event{{Reply: &Reply{Groups: []string{}}}}, []Move{{Group: "web", Error: "this director is not its master any more"}}, ""},
	} {
		path := filepath.Join(t.TempDir(), "control.sock")
		p := listen(t, path)
		go func() {
			p.accept()
			p.next()
			for _, e := range c.events {
				p.send(e)
			}
			if c.want == nil || c.want[0] == unknown {
				p.end()
			}
		}()
		conn, err := Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		var got []Move
		err = conn.GiveUp(t.Context(), []string{"web"}, func(m Move) { got = append(got, m) })
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		conn.Close()
	}
}

// What has not moved in time is said.
func TestGiveUpInTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	p := listen(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		p.accept()
		p.next()
		p.send(Event{Reply: &Reply{Groups: []string{"web"}}})
		time.Sleep(time.Second) // the reply is read
		cancel()
	}()
	conn, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got []Move
	if err := conn.GiveUp(ctx, nil, func(m Move) { got = append(got, m) }); err != nil || len(got) != 1 || got[0].Error == "" {
		t.Errorf("%+v, %v", got, err)
	}
}
