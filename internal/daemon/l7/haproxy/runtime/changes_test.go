// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// shop is a configuration with two servers, changed by a function.
func shop(states l7.States, change ...func(*l7.Config)) Side {
	c := &l7.Config{
		Engine:    l7.Engine{User: "haproxy"},
		Listeners: []l7.Listener{{Name: "shop", Default: l7.Target{Backend: "web"}, TLS: &l7.TLS{Certificates: []string{"/a.pem"}}}},
		Backends: []l7.Backend{{Name: "web", Method: l7.RoundRobin, Servers: []l7.Server{
			{Name: "a", Address: netip.MustParseAddrPort("172.16.0.2:80"), Weight: 1}, {Name: "b", Address: netip.MustParseAddrPort("[2001:db8::3]:80"), Weight: 2},
		}}},
	}
	for _, one := range change {
		one(c)
	}
	return Side{c, states}
}

func add(c *l7.Config) {
	web := &c.Backends[0]
	web.Servers = append(web.Servers, l7.Server{Name: "n", Address: netip.MustParseAddrPort("[2001:db8::9]:8080"), Weight: 5})
}

func raw(lines ...string) func(*l7.Config) {
	return func(c *l7.Config) { c.Backends[0].Raw = lines }
}

func method(m l7.Method) func(*l7.Config) {
	return func(c *l7.Config) { c.Backends[0].Method = m }
}

func cookie(c *l7.Config) { c.Backends[0].Cookie = &l7.Cookie{Name: "SRV"} }

func TestChanges(t *testing.T) {
	a, b, n := l7.ServerID{Backend: "web", Server: "a"}, l7.ServerID{Backend: "web", Server: "b"}, l7.ServerID{Backend: "web", Server: "n"}
	up := func(weight int) l7.State { return l7.State{Weight: weight} }
	down, drain := l7.State{Health: l7.Down, Weight: 1}, l7.State{Health: l7.Drain, Weight: 1}
	added := []string{"add server web/n [2001:db8::9]:8080 ARGUMENTS", "set server web/n weight 5", "set server web/n state ready"}
	for name, c := range map[string]struct {
		from, to Side
		version  version
		commands []string
		reload   []string // a part of each reason
	}{
		"nothing":               {from: shop(nil), to: shop(nil)},
		"a state as configured": {from: shop(nil), to: shop(l7.States{a: up(1)})},
		"no entries and nil":    {from: shop(nil), to: shop(nil, func(c *l7.Config) { c.Backends[0].RetryOn = []string{} })},
		"dead":                  {from: shop(nil), to: shop(l7.States{a: down}), commands: []string{"set server web/a state maint", "shutdown sessions server web/a"}},
		"drained":               {from: shop(nil), to: shop(l7.States{a: drain}), commands: []string{"set server web/a state maint"}},
		"drained and dead":      {from: shop(l7.States{a: drain}), to: shop(l7.States{a: down}), commands: []string{"shutdown sessions server web/a"}},
		"dead and drained":      {from: shop(l7.States{a: down}), to: shop(l7.States{a: drain})},
		"alive with less weight": {from: shop(l7.States{b: {Health: l7.Down, Weight: 2}}), to: shop(l7.States{b: up(1)}),
			commands: []string{"set server web/b weight 1", "set server web/b state ready"}},
		"weight 0": {from: shop(nil), to: shop(l7.States{a: up(0)}), commands: []string{"set server web/a weight 0"}},
		"the configured weight": {from: shop(nil), to: shop(nil, func(c *l7.Config) { c.Backends[0].Servers[0].Weight = 9 }),
			commands: []string{"set server web/a weight 9"}},
		"address": {from: shop(nil), to: shop(nil, func(c *l7.Config) {
			c.Backends[0].Servers[0].Address = netip.MustParseAddrPort("[2001:db8::7]:81")
		}),
			commands: []string{"set server web/a addr 2001:db8::7 port 81"}},
		"address of a dead one": {from: shop(l7.States{a: down}), to: shop(l7.States{a: down}, func(c *l7.Config) {
			c.Backends[0].Servers[0].Address = netip.MustParseAddrPort("172.16.0.9:80")
		}), commands: []string{"set server web/a addr 172.16.0.9 port 80"}},
		"limit":          {from: shop(nil), to: shop(nil, func(c *l7.Config) { c.Backends[0].Servers[0].MaxConnections = 5 }), commands: []string{"set maxconn server web/a 5"}},
		"added":          {from: shop(nil), to: shop(nil, add), commands: added},
		"added and dead": {from: shop(nil), to: shop(l7.States{n: {Health: l7.Down, Weight: 5}}, add), commands: added[:2]},
		"removed":        {from: shop(nil, add), to: shop(nil), commands: []string{"set server web/n state maint", "del server web/n"}},
		"order":          {from: shop(nil), to: shop(nil, func(c *l7.Config) { slices.Reverse(c.Backends[0].Servers) })},

		"added with a cookie, 2.6":  {from: shop(nil, cookie), to: shop(nil, cookie, add), version: version{2, 6}, reload: []string{"backend web: server n is added, and the backend has a cookie"}},
		"added with a cookie, 3.0":  {from: shop(nil, cookie), to: shop(nil, cookie, add), version: version{3, 0}, commands: added},
		"removed, named":            {from: shop(nil, raw("use-server n if X"), add), to: shop(nil, raw("use-server n if X")), commands: []string{"set server web/n state maint"}, reload: []string{"name servers"}},
		"backup":                    {from: shop(nil), to: shop(nil, func(c *l7.Config) { c.Backends[0].Servers[0].Backup = true }), reload: []string{"server a: backup changed"}},
		"order of first":            {from: shop(nil, method(l7.First)), to: shop(nil, method(l7.First), func(c *l7.Config) { slices.Reverse(c.Backends[0].Servers) }), reload: []string{"order of servers"}},
		"added to first":            {from: shop(nil, method(l7.First)), to: shop(nil, method(l7.First), add), commands: added},
		"added to first, in front":  {from: shop(nil, method(l7.First)), to: shop(nil, method(l7.First), add, func(c *l7.Config) { slices.Reverse(c.Backends[0].Servers[1:]) }), reload: []string{"not the last one"}},
		"removed of first":          {from: shop(nil, method(l7.First), add), to: shop(nil, method(l7.First)), commands: []string{"set server web/n state maint"}, reload: []string{"numbers of servers"}},
		"process":                   {from: shop(nil), to: shop(nil, func(c *l7.Config) { c.Engine.MaxConnections = 5 }), reload: []string{"proxy: max connections changed"}},
		"certificates and a server": {from: shop(nil), to: shop(nil, add, func(c *l7.Config) { c.Listeners[0].TLS = &l7.TLS{} }), reload: []string{"listener shop: tls changed"}},
		"others": {from: shop(nil), to: shop(nil, func(c *l7.Config) {
			c.Listeners[0].Name, c.Backends[0].Name = "x", "y"
		}), reload: []string{"listener x is added", "listener shop is removed", "backend y is added", "backend web is removed"}},
		"timeouts, and a dead server": {from: shop(nil), to: shop(l7.States{a: down}, func(c *l7.Config) { c.Backends[0].Timeouts.Queue = time.Second }),
			commands: []string{"set server web/a state maint", "shutdown sessions server web/a"}, reload: []string{"backend web: timeouts changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.version == (version{}) {
				c.version = version{2, 6}
			}
			p := Changes(c.from, c.to, c.version, func(b *l7.Backend, s *l7.Server) []string {
				if b.Name != "web" || s.Name != "n" {
					t.Errorf("arguments of %s/%s", b.Name, s.Name)
				}
				return []string{"ARGUMENTS"}
			})
			var lines []string
			for _, one := range p.Commands {
				lines = append(lines, one.Line)
			}
			if !slices.Equal(lines, c.commands) {
				t.Errorf("commands %q; want %q", lines, c.commands)
			}
			if !slices.EqualFunc(p.Reload, c.reload, strings.Contains) {
				t.Errorf("reload because of %q; want %q", p.Reload, c.reload)
			}
		})
	}
}

// Each field of the model is looked at: one that changes has commands, or a reload.
func TestEveryFieldMatters(t *testing.T) {
	objects := map[string]func(*l7.Config) reflect.Value{
		"engine":   func(c *l7.Config) reflect.Value { return reflect.ValueOf(&c.Engine).Elem() },
		"listener": func(c *l7.Config) reflect.Value { return reflect.ValueOf(&c.Listeners[0]).Elem() },
		"backend":  func(c *l7.Config) reflect.Value { return reflect.ValueOf(&c.Backends[0]).Elem() },
		"server":   func(c *l7.Config) reflect.Value { return reflect.ValueOf(&c.Backends[0].Servers[0]).Elem() },
	}
	for name, object := range objects {
		for i := range object(shop(nil).Config).NumField() {
			to := shop(nil)
			field := object(to.Config).Type().Field(i).Name
			alter(t, object(to.Config).Field(i))
			p := Changes(shop(nil), to, version{2, 6}, func(*l7.Backend, *l7.Server) []string { return nil })
			if len(p.Commands)+len(p.Reload) == 0 {
				t.Errorf("%s: %s changes nothing", name, field)
			}
		}
	}
}

// alter sets a value to another one.
func alter(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("other")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[netip.AddrPort]() {
			v.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.1:1")))
			return
		}
		alter(t, v.Field(0))
	default:
		t.Fatalf("a value of kind %s", v.Kind())
	}
}
