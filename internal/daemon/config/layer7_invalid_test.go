// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// ofLayer7 is valid; each case changes one place of it.
const ofLayer7 = `proxy: {threads: 2}
checks: {web: {http: {host: a.example}}}
services:
  - {name: masq, virtual: "10.20.0.9:80", servers: [{address: 172.16.0.9}]}
listeners:
  - name: shop
    bind: ["10.20.0.1:443"]
    tls: {certificates: [/etc/tls/shop.pem]}
    routes:
      - {match: {path_prefixes: [/api]}, backend: api}
    backend: web
  - name: plain
    bind: ["10.20.0.1:80"]
    redirect: {scheme: https}
backends:
  - name: web
    cookie: {name: SRV}
    checks: [web]
    servers: [{address: 172.16.0.2:8080}]
  - name: api
    servers: [{address: 172.16.0.3:8080}]
`

type invalid struct{ name, old, new, want string }

const (
	ofShop  = "    backend: web\n"
	ofRoute = "      - {match: {path_prefixes: [/api]}, backend: api}\n"
	ofPlain = "    redirect: {scheme: https}\n"
	ofWeb   = "    checks: [web]\n"
	ofTLS   = "{certificates: [/etc/tls/shop.pem]}"
)

func route(text string) string  { return ofRoute + "      - {" + text + "}\n" }
func shop(text string) string   { return ofShop + "    " + text + "\n" }
func plain(text string) string  { return ofPlain + "    " + text + "\n" }
func web(text string) string    { return ofWeb + "    " + text + "\n" }
func server(text string) string { return "{address: 172.16.0.2:8080, " + text + "}" }

const ofServer = "{address: 172.16.0.2:8080}"

func readText(text string) (*Config, error) {
	return Parse("x.yaml", []byte(text))
}

// Each mistake has one line that names place and remedy, and nothing is accepted of the file.
func TestInvalidLayer7(t *testing.T) {
	if _, err := readText(ofLayer7); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, c := range invalids {
		if known[c.name] || !strings.Contains(ofLayer7, c.old) {
			t.Errorf("%s: is there twice, or changes nothing", c.name)
		}
		known[c.name] = true
		config, err := readText(strings.Replace(ofLayer7, c.old, c.new, 1))
		if config != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: got\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
}
