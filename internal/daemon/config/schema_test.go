// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The schema accepts what the parser accepts, and refuses unknown keys and kinds.
func TestSchema(t *testing.T) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	for _, path := range []string{"testdata/whole.yaml", "testdata/more/services.yaml", "testdata/layer7/whole.yaml", "testdata/layer7/more/backends.yaml"} {
		if err := valid(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"unknown-key", "unknown-service-key", "unknown-server-key", "unknown-check-key", "unknown-http-key", "list-for-mapping", "text-for-number", "text-for-list", "mode", "protocol", "on-failure", "all-down", "sync-unknown-key", "sync-role", "vrrp-unknown-key", "vrrp-checksum"} {
		if err := valid("testdata/invalid/" + name + ".yaml"); err == nil {
			t.Errorf("%s is valid by the schema", name)
		}
	}
	for _, text := range []string{
		"listeners: [{nam: a}]", "listeners: [{name: a, routes: [{match: {path: /}}]}]", "listeners: [{name: a, log: {format: clf}}]", "listeners: [{name: a, tls: {certificates: /a}}]",
		"backends: [{name: a, balance: rr}]", "backends: [{name: a, servers: [{address: b, weight: heavy}]}]", "backends: [{name: a, cookie: SRV}]", "proxy: {threads: many}", "proxy: {chroot: /}",
	} {
		if err := valid(write(t, text+"\n")); err == nil {
			t.Errorf("%s is valid by the schema", text)
		}
	}
}

// Every key says what it is for.
func TestKeysAreDescribed(t *testing.T) {
	keys := Keys()
	for _, k := range keys {
		if About(k) == "" || strings.HasSuffix(About(k), ".") {
			t.Errorf("%s: %q", k.Path, About(k))
		}
	}
	if len(keys) < 100 {
		t.Errorf("%d keys", len(keys))
	}
}
