// SPDX-License-Identifier: Apache-2.0

package study

import (
	"strings"
	"testing"
)

// caches is a valid study of what dh, lblc and lblcr are for.
const caches = `name: caches
cluster:
  client_namespaces: 1
  client_addresses: 10
  virtual_addresses: 100
  servers: [{kind: nginx, count: 3, page: 1 KB}]
load:
  rates: [1000]
  duration: 1 s
  timeout: 5 s
  destination_zipf: 0.8
  urls: 2000
  url_zipf: 1
  calls: [{name: page, path: "/url/{url}"}]
competitors:
  - {engine: imbang, schedulers: [wlc, dh, lblc, lblcr]}
repeats: {least: 2}
`

func TestParsePopularity(t *testing.T) {
	s, err := Parse("s.yaml", []byte(caches), engines)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Popularity{0.8, 2000, 1}); s.VirtualAddresses != 100 || s.Load.Popularity != want {
		t.Errorf("%d addresses, %+v; want 100, %+v", s.VirtualAddresses, s.Load.Popularity, want)
	}
	alike := strings.Replace(caches, "  destination_zipf: 0.8\n", "", 1)
	if s, err := Parse("s.yaml", []byte(alike), engines); err != nil || s.Load.DestinationZipf != 0 {
		t.Errorf("%+v, %v; want addresses that are all alike", s, err)
	}
	inBody := strings.Replace(caches, `path: "/url/{url}"`, `method: POST, path: /, body: "{url}"`, 1)
	if _, err := Parse("s.yaml", []byte(inBody), engines); err != nil {
		t.Error(err)
	}
}

func TestParseRefusesPopularity(t *testing.T) {
	for _, c := range []struct{ old, bad, want string }{
		{"addresses: 100", "addresses: 0", "s.yaml:5:22: cluster.virtual_addresses: 0 is out of range: want 1 to 4096"},
		{"addresses: 100", "addresses: 5000", "s.yaml:5:22: cluster.virtual_addresses: 5000 is out of range: want 1 to 4096"},
		{"addresses: 100", "addresses: 1.5", "s.yaml:5:22: cluster.virtual_addresses: 1.5 is not a whole number: want 1 to 4096"},
		{"addresses: 100", "addresses: 1", "s.yaml:11:21: load.destination_zipf: there is one address to choose: give cluster.virtual_addresses, such as 100, or remove it"},
		{"  virtual_addresses: 100\n", "", "s.yaml:10:21: load.destination_zipf: there is one address to choose: give cluster.virtual_addresses, such as 100, or remove it"},
		{"destination_zipf: 0.8", "destination_zipf: -1", "s.yaml:11:21: load.destination_zipf: -1 is out of range: want an exponent of Zipf's law from 0, all alike, to 10"},
		{"url_zipf: 1", "url_zipf: 11", "s.yaml:13:13: load.url_zipf: 11 is out of range: want an exponent of Zipf's law from 0, all alike, to 10"},
		{"url_zipf: 1", "url_zipf: steep", `s.yaml:13:13: load.url_zipf: "steep" is of the wrong kind: want a number`},
		{"urls: 2000", "urls: 0", "s.yaml:12:9: load.urls: 0 is out of range: want 1 to 1000000"},
		{"  urls: 2000\n", "", "s.yaml:12:13: load.url_zipf: there are no URLs to choose: give load.urls, such as 1000, or remove it"},
		{"  urls: 2000\n  url_zipf: 1\n", "", "s.yaml:12:11: load.calls[0]: {url} stands for one of load.urls: say how many there are, such as urls: 1000"},
		{"/url/{url}", "/url/1", "s.yaml:12:9: load.urls: no call asks for them: write {url} into the path of one of load.calls, such as /url/{url}, or remove it"},
		{"/url/{url}", "/{url}", `s.yaml:14:30: load.calls[0].path: "/{url}": s1 is nginx, which has {url} below /url/: write /url/{url}`},
		{"{kind: nginx, count: 3, page: 1 KB}", "{kind: api}", `s.yaml:14:30: load.calls[0].path: "/url/{url}": s1 is an application of fixed paths: write {url} into the body, or use servers of kind: model`},
		{"url_zipf: 1", "tools: [built-in, ab]", "s.yaml:13:21: load.tools[1]: ab sends to one address: remove it, or cluster.virtual_addresses"},
		{"schedulers: [wlc, dh, lblc, lblcr]}", "schedulers: [dh]}\n  - {engine: direct}", "s.yaml:17:14: competitors[1].engine: direct is reached at a server's own address: remove it, or cluster.virtual_addresses"},
	} {
		t.Run(c.bad, func(t *testing.T) {
			text := strings.Replace(caches, c.old, c.bad, 1)
			if text == caches {
				t.Fatalf("%q is not in the study", c.old)
			}
			if _, err := Parse("s.yaml", []byte(text), engines); err == nil || err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
		})
	}
}

// Tools that send one request cannot ask for several URLs of one address.
func TestParseRefusesToolsWithURLs(t *testing.T) {
	text := strings.NewReplacer("  virtual_addresses: 100\n", "", "  destination_zipf: 0.8\n", "", "url_zipf: 1", "tools: [wrk]").Replace(caches)
	want := "s.yaml:11:11: load.tools[0]: wrk sends the same request again and again: remove it, or load.urls"
	if _, err := Parse("s.yaml", []byte(text), engines); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A log says what is asked for and not at which address.
func TestParseRefusesPopularityOfALog(t *testing.T) {
	const replay = `name: replayed
cluster: {client_namespaces: 1, client_addresses: 10, servers: [{kind: model, page: 1 KB, law: constant, service: 1 ms, concurrency: 1}]}
load: {replay: {log: a.log}, timeout: 5 s}
competitors: [{engine: imbang, schedulers: [rr]}]
repeats: {least: 1}
`
	for bad, want := range map[string]string{
		"addresses: 10, virtual_addresses: 5": "s.yaml:2:74: cluster.virtual_addresses: remove it: a log does not say which address a request went to",
		"5 s, urls: 10":                       "s.yaml:3:50: load.urls: remove it: the log says what is sent, and when, and the built-in generator sends it",
	} {
		old, _, _ := strings.Cut(bad, ",")
		text := strings.Replace(replay, old, bad, 1)
		if _, err := Parse("s.yaml", []byte(text), engines); err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
	}
}
