// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// Render writes a document as YAML, keys in their order.
func (r *Rules) Render(d Document) ([]byte, error) {
	text, err := yaml.MarshalWithOptions(r.ordered("", d), yaml.Indent(2), yaml.IndentSequence(true), yaml.UseLiteralStyleIfMultiline(true))
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return text, nil
}

func (r *Rules) ordered(path string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := yaml.MapSlice{}
		for _, key := range r.keys(path, value) {
			out = append(out, yaml.MapItem{Key: key, Value: r.ordered(join(path, key), value[key])})
		}
		return out
	case []any:
		out := []any{}
		for _, one := range value {
			out = append(out, r.ordered(path+"[]", one))
		}
		return out
	}
	return value
}
