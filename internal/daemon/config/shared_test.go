// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"imbang/internal/daemon/pair/shared"
)

// The keys of one director are keys that there are.
func TestSharedRules(t *testing.T) {
	r := SharedRules()
	for _, path := range slices.Concat(r.Own, r.Local, r.Present) {
		if !slices.Contains(r.Order, path) {
			t.Errorf("there is no key %s", path)
		}
	}
}

const ofA = `
director: {client_device: eth0, server_device: eth1, addresses: [{address: 10.0.0.1}], max_services: 10}
synchronization:
  replication: {role: master, listen: 192.0.2.1, to: [192.0.2.2], key_file: /etc/a}
pair: {}
vrrp:
  groups:
    - name: web
      priority: 150
      interval: 100 ms
      routers: [{device: eth0, id: 7, source: 192.0.2.1, peers: [192.0.2.2], addresses: [10.20.0.1/24], elsewhere: [{address: 203.0.113.5/24, device: eth1}]}]
      addresses: [{address: 172.16.0.1/24, device: eth1}]
checks:
  web: {http: {headers: {Authorization: "Basic s3cr3t"}}, interval: 60 s}
services:
  - name: web
    virtual: "10.20.0.1:80"
    checks: [web]
    servers: [{address: 172.16.0.2, weight: 2}, {address: 172.16.0.3}]
`

// ofB is the same for the other director, in other spellings.
const ofB = `
pair: {peer: 192.0.2.1, listen: 192.0.2.2, key_file: /etc/b}
director: {client_device: ens3, max_services: 10}
synchronization:
  replication: {role: backup, listen: 192.0.2.2, to: [192.0.2.1], key_file: /etc/b}
checks:
  web: {interval: 1min, http: {headers: {Authorization: "Basic s3cr3t"}}}
services:
  - {virtual: "10.20.0.1:80", name: web, checks: [web], servers: [{weight: 2, address: 172.16.0.2}, {address: 172.16.0.3}]}
vrrp:
  groups:
    - name: web
      interval: 0.1s
      routers: [{id: 7, device: ens3, peers: [192.0.2.1], addresses: [10.20.0.1/24], elsewhere: [{device: ens4, address: 203.0.113.5/24}]}]
      addresses: [{address: 172.16.0.1/24, device: ens4}]
`

func documentOf(t *testing.T, text string) shared.Document {
	t.Helper()
	c, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := DecodeDocument(c.Document)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What belongs to one director, and how a value is written, is no difference.
func TestSameOnBoth(t *testing.T) {
	if diff := SharedRules().Differences(documentOf(t, ofA), documentOf(t, ofB)); diff != nil {
		t.Errorf("%v", diff)
	}
}

func TestDifferences(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"weight: 2", "weight: 3"}:   "services[web].servers[172.16.0.2].weight: 2 here, 3 there",
		{"weight: 2", "upper: 3"}:    "services[web].servers[172.16.0.2].weight: 2 here, not set there\nservices[web].servers[172.16.0.2].upper: not set here, 3 there",
		{"172.16.0.3", "172.16.0.4"}: "services[web].servers[172.16.0.3]: 1 keys here, not set there\nservices[web].servers[172.16.0.4]: not set here, 1 keys there",
		{"[{address: 172.16.0.2, weight: 2}, {address: 172.16.0.3}]", "[{address: 172.16.0.3}, {address: 172.16.0.2, weight: 2}]"}: "services[web].servers (order): 172.16.0.2, 172.16.0.3 here, 172.16.0.3, 172.16.0.2 there",
		{"s3cr3t", "other"}:                           "checks.web.http.headers.Authorization: a value that is not shown here, a value that is not shown there",
		{"id: 7", "id: 8"}:                            "vrrp.groups[web].routers[0].id: 7 here, 8 there",
		{", peers: [192.0.2.2]", ""}:                  "vrrp.groups[web].routers[0].peers: [] here, not set there",
		{"priority: 150", "priority: 99"}:             "",
		{"interval: 60 s", "interval: 60 s, rise: 1"}: "checks.web.rise: not set here, 1 there",
	} {
		if !strings.Contains(ofA, change[0]) {
			t.Fatalf("%q is not there", change[0])
		}
		var got []string
		for _, d := range SharedRules().Differences(documentOf(t, ofA), documentOf(t, strings.ReplaceAll(ofA, change[0], change[1]))) {
			got = append(got, d.String())
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%q: got\n%s\nwant\n%s", change, text, want)
		}
	}
}

// push is what B's file becomes by A's.
func push(t *testing.T, a, b string) (string, error) {
	t.Helper()
	// As it is sent.
	text, err := json.Marshal(SharedRules().Transfer(documentOf(t, a)))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "192.0.2") || strings.Contains(string(text), "/etc/a") {
		t.Errorf("what is A's own is sent: %s", text)
	}
	theirs, err := DecodeDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := SharedRules().Merge(theirs, documentOf(t, b))
	if err != nil {
		return "", err
	}
	out, err := Render(merged)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), nil
}

// A pushed configuration has what is shared of one director and the rest of the other.
func TestMerge(t *testing.T) {
	a := strings.NewReplacer("weight: 2", "weight: 5", "100 ms", "50 ms", "name: web\n    virtual", "name: shop\n    virtual", `"Basic s3cr3t"`, `"007: # - \"x\\ny\""`).Replace(ofA)
	got, err := push(t, a, ofB)
	if err != nil {
		t.Fatal(err)
	}
	if diff := SharedRules().Differences(documentOf(t, a), documentOf(t, got)); diff != nil {
		t.Errorf("%v in\n%s", diff, got)
	}
	c, err := Parse("x.yaml", []byte(got))
	if err != nil {
		t.Fatalf("%v in\n%s", err, got)
	}
	b, err := Parse("x.yaml", []byte(ofB))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Pair, b.Pair) || !c.Replication.Equal(b.Replication) {
		t.Errorf("%+v, %+v in\n%s", c.Pair, c.Replication, got)
	}
	if d := c.Director; d.ClientDevice != "ens3" || d.ServerDevice != "ens3" || len(d.Addresses) != 0 {
		t.Errorf("%+v", d)
	}
	g, was := c.VRRP.Groups[0], b.VRRP.Groups[0]
	if g.Priority != was.Priority || !reflect.DeepEqual(g.Routers[0].Peers, was.Routers[0].Peers) || g.Routers[0].Source != was.Routers[0].Source ||
		g.Routers[0].Device != "ens3" || g.Addresses[0].Device != "ens4" || g.Routers[0].Elsewhere[0].Device != "ens4" || g.Interval.Milliseconds() != 50 {
		t.Errorf("%+v in\n%s", g, got)
	}
	if c.Services[0].Name != "shop" || c.Services[0].Servers[0].Weight != 5 {
		t.Errorf("%+v", c.Services)
	}
	// Back again, nothing is lost of the first one.
	back, err := push(t, ofB, ofA)
	if err != nil {
		t.Fatal(err)
	}
	first, again := documentOf(t, ofA), documentOf(t, back)
	if first["pair"] == nil || !reflect.DeepEqual(first["director"], again["director"]) || !reflect.DeepEqual(first["pair"], again["pair"]) ||
		!reflect.DeepEqual(first["synchronization"], again["synchronization"]) {
		t.Errorf("%v\nof\n%v", again, first)
	}
}

// A group whose peers only the other director knows is refused, and a group by multicast comes
// with its devices.
func TestMergeNewGroup(t *testing.T) {
	const more = "vrrp:\n  groups:\n    - {name: db, routers: [{device: eth1, id: 9, source: 192.0.2.1, peers: [192.0.2.2], addresses: [10.30.0.1/24]}]}"
	a := strings.Replace(ofA, "vrrp:\n  groups:", more, 1)
	if got, err := push(t, a, ofB); err == nil || !strings.Contains(err.Error(), "vrrp.groups[db].routers[0].peers is of one director alone, and new") {
		t.Errorf("%s, %v", got, err)
	}
	got, err := push(t, strings.Replace(a, ", source: 192.0.2.1, peers: [192.0.2.2], addresses: [10.30", ", addresses: [10.30", 1), ofB)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("x.yaml", []byte(got))
	if err != nil || len(c.VRRP.Groups) != 2 || c.VRRP.Groups[0].Routers[0].Device != "eth1" || c.VRRP.Groups[1].Routers[0].Device != "ens3" {
		t.Errorf("%v, %v", got, err)
	}
}

// Included files are a part of the document, with their place in it.
func TestDocumentOfIncludes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"imbang.yaml": "include: [more.yaml]\npair: {listen: 192.0.2.1, peer: 192.0.2.2, key_file: /k}\nchecks: {a: {tcp: {}}}\nservices: [{name: one, virtual: \"10.0.0.1:1\"}]\n",
		"more.yaml":   "checks: {b: {tcp: {}}}\nservices: [{name: two, virtual: \"10.0.0.1:2\", checks: [b]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(filepath.Join(dir, "imbang.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"checks":{"a":{"tcp":{}},"b":{"tcp":{}}},"pair":{"key_file":"/k","listen":"192.0.2.1","peer":"192.0.2.2"},` +
		`"services":[{"name":"one","virtual":"10.0.0.1:1"},{"checks":["b"],"name":"two","virtual":"10.0.0.1:2"}]}`
	if string(c.Document) != want {
		t.Errorf("%s", c.Document)
	}
	text, err := Render(documentOf(t, want))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("x.yaml", text)
	if err != nil || !reflect.DeepEqual(again.Services, c.Services) {
		t.Errorf("%v in\n%s", err, text)
	}
}

// All configurations of the tests are written as they were read.
func TestRenderAll(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		c, err := Load(path)
		if err != nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const section = "\npair: {listen: 192.0.2.1, peer: 192.0.2.2, key_file: /k}\n"
		paired, err := Parse(path, append(text, section...))
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeDocument(paired.Document)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := Render(d)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := Parse(path, rendered)
		if err != nil {
			t.Errorf("%s: %v in\n%s", path, err, rendered)
			continue
		}
		again.Pair, again.Document, again.Files, again.Commands = nil, nil, c.Files, c.Commands
		if !reflect.DeepEqual(again, c) {
			t.Errorf("%s: differs from\n%s", path, rendered)
		}
	}
}
