// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	checkName = regexp.MustCompile(`(?m)^  ([a-z]+):`)
)

// The recipes of health checks are valid, and there is one for each kind.
func TestRecipesAreValid(t *testing.T) {
	kinds := map[string]bool{}
	for i, m := range yamlBlock.FindAllStringSubmatch(read(t, "docs/how-to/checks.md"), -1) {
		text := m[1]
		if !strings.Contains(text, "services:") {
			_, checks, _ := strings.Cut(text, "checks:\n")
			var names []string
			for _, n := range checkName.FindAllStringSubmatch(checks, -1) {
				names = append(names, n[1])
			}
			text += fmt.Sprintf("services: [{name: web, virtual: 10.20.0.1:80, checks: [%s], servers: [{address: 172.16.0.2}]}]\n", strings.Join(names, ", "))
		}
		c, err := config.Parse(fmt.Sprintf("recipe %d", i+1), []byte(text))
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		for _, one := range c.Services[0].Servers[0].Checks {
			kinds[one.Kind] = true
		}
	}
	for _, kind := range check.KindNames() {
		if !kinds[kind] {
			t.Errorf("no recipe of kind %s", kind)
		}
	}
}
