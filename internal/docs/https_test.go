// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
)

// The first block of the how-to has five commands, which build/check-https carries out; the configuration
// in it is valid, without a warning.
func TestHTTPSInFiveCommands(t *testing.T) {
	block := regexp.MustCompile("(?s)```console\n(.*?)```").FindStringSubmatch(read(t, "docs/how-to/https.md"))
	if block == nil {
		t.Fatal("there is no block of the language console")
	}
	document := regexp.MustCompile(`(?s)<<'END'\n(.*?)\nEND\n`).FindStringSubmatch(block[1])
	if document == nil {
		t.Fatal("there is no configuration")
	}
	commands := strings.Count("\n"+strings.Replace(block[1], document[0], "\n", 1), "\n# ")
	if commands != 5 {
		t.Errorf("%d commands, want 5", commands)
	}
	c, err := config.Parse("https.md", []byte(document[1]))
	if err != nil {
		t.Fatal(err)
	}
	if c.Layer7 == nil || len(c.Layer7.Listeners) != 2 || len(c.Layer7.Backends[0].Servers) != 3 || c.NamesDirector() || len(c.Warnings) > 0 {
		t.Errorf("%+v", c)
	}
}
