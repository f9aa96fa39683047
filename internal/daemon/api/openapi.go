// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"imbang/internal/version"
)

const refusals = "Refused: 400 not valid, 403 not permitted, 404 unknown server or service, 409 the state or the configuration forbids it, " +
	"413 too large, 429 the user has too many connections or followers, 503 all users of its class have."

// OpenAPI describes the interface (OpenAPI 3.1), made of Routes and the types they
// name.
func OpenAPI() []byte {
	schemas, paths := map[string]any{}, map[string]map[string]any{}
	for _, r := range Routes() {
		op := map[string]any{"summary": r.Summary, "operationId": strings.ReplaceAll(strings.TrimPrefix(r.Path, "/v1/"), ".json", "")}
		about := r.Note
		if r.Changes {
			about = strings.TrimSpace("Permitted to root and to members of group " + Group + ". " + about)
		}
		if about != "" {
			op["description"] = about
		}
		var parameters []any
		for _, q := range r.Query {
			parameters = append(parameters, map[string]any{"name": q.Name, "in": "query", "description": q.Summary, "schema": map[string]any{"type": "string"}})
		}
		if parameters != nil {
			op["parameters"] = parameters
		}
		if r.Request != nil {
			op["requestBody"] = map[string]any{"required": true, "content": content("application/json", r.Request, schemas)}
		}
		kind := "application/json"
		if r.Stream {
			kind = "application/jsonl"
		}
		op["responses"] = map[string]any{
			"200":     map[string]any{"description": "done", "content": content(kind, r.Reply, schemas)},
			"default": map[string]any{"description": refusals, "content": content("application/json", reflect.TypeFor[Error](), schemas)},
		}
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = op
	}
	text, err := json.MarshalIndent(map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": "imbang", "version": version.Version, "description": "The local interface of imbang run: HTTP on a Unix socket."},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	}, "", "  ")
	if err != nil {
		panic(err) // of values that are all made here
	}
	return text
}

// content refers to the schema of a type, which it enters.
func content(kind string, t reflect.Type, schemas map[string]any) map[string]any {
	if t.Kind() != reflect.Struct {
		return map[string]any{kind: map[string]any{"schema": map[string]any{"type": "object"}}}
	}
	r := jsonschema.Reflector{Anonymous: true}
	s := r.ReflectFromType(t)
	for name, def := range s.Definitions {
		schemas[name] = rebased(def)
	}
	return map[string]any{kind: map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/" + t.Name()}}}
}

// rebased is a definition that refers to the others where OpenAPI has them.
func rebased(s *jsonschema.Schema) (out map[string]any) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"#/$defs/`, `"#/components/schemas/`)), &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}
