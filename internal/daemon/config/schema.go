// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"imbang/internal/model"
	"imbang/internal/strictyaml"
)

// Key is a key of a configuration.
type Key = strictyaml.Key

// Keys lists all keys, in the order to write them.
func Keys() []Key { return strictyaml.Keys[document]() }

// About is what a key is for, as the schema says.
func About(k Key) string { return k.Field.Tag.Get("jsonschema_description") }

// Values are the words that a key may have, as the schema says; nil: it has no such list.
func Values(k Key) (words []string) {
	if k.Path == "services[].scheduler" {
		return model.SchedulerNames()
	}
	for option := range strings.SplitSeq(k.Field.Tag.Get("jsonschema"), ",") {
		if word, is := strings.CutPrefix(option, "enum="); is {
			words = append(words, word)
		}
	}
	return words
}

// Schema is the JSON Schema of a configuration (draft 2020-12), for editors. It knows keys
// and kinds of values; imbang check knows what they mean together.
func Schema() []byte {
	r := jsonschema.Reflector{FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Anonymous: true, Mapper: scalars}
	s := r.ReflectFromType(reflect.TypeFor[document]())
	s.Title = "imbang.yaml"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // of values that are all made here
	}
	return append(text, '\n')
}

// scalars lets texts be written without quotes: a setting's value may look like a number.
func scalars(t reflect.Type) *jsonschema.Schema {
	if t == reflect.TypeFor[map[string]string]() {
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{
			AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}},
		}}
	}
	return nil
}
