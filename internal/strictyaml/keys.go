// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"reflect"
	"regexp"
	"strings"
	"sync"
)

var indices = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[\d+\]`) })

// typeAt is the Go type that a path of a file is decoded into, nil for
// an unknown path.
func typeAt(root reflect.Type, path string) reflect.Type {
	t := root
	for _, key := range strings.Split(path, ".") {
		if key == "" {
			continue
		}
		if t = deref(t); t.Kind() == reflect.Map {
			t = t.Elem()
		} else if t.Kind() == reflect.Struct {
			f, ok := fieldOf(t, indices().ReplaceAllString(key, ""))
			if !ok {
				return nil
			}
			t = f
		}
		if deref(t).Kind() == reflect.Slice && indices().MatchString(key) {
			t = t.Elem()
		}
	}
	return deref(t)
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func fieldOf(t reflect.Type, key string) (reflect.Type, bool) {
	for _, f := range Fields(t) {
		if f.Tag.Get("yaml") == key {
			return f.Type, true
		}
	}
	return nil, false
}

// Fields are the fields of a struct that have a key, those of embedded structs with
// the tag `yaml:",inline"` among them.
func Fields(t reflect.Type) (list []reflect.StructField) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("yaml") == ",inline" {
			list = append(list, Fields(f.Type)...)
		} else {
			list = append(list, f)
		}
	}
	return list
}

// keysAt lists the keys of the mapping at a path, in the order to write them.
func keysAt(root reflect.Type, path string) []string {
	var keys []string
	if t := typeAt(root, path); t != nil && t.Kind() == reflect.Struct {
		for _, f := range Fields(t) {
			keys = append(keys, f.Tag.Get("yaml"))
		}
	}
	return keys
}

// Key is a key of a kind of file: its path, with [] behind a key that has a list of
// mappings and .NAME behind one whose mappings have names of the user's, what kind of
// value it has, and the Go field with its tags.
type Key struct {
	Path, Kind string
	Field      reflect.StructField
}

// Keys lists all keys of what is decoded into a type, in the order to write them.
func Keys[T any]() []Key { return keysBelow("", reflect.TypeFor[T]()) }

func keysBelow(prefix string, t reflect.Type) (keys []Key) {
	for _, f := range Fields(t) {
		path, of := prefix+f.Tag.Get("yaml"), deref(f.Type)
		keys = append(keys, Key{path, kindName(of), f})
		switch of.Kind() {
		case reflect.Slice:
			path, of = path+"[]", of.Elem()
		case reflect.Map:
			path, of = path+".NAME", of.Elem()
		}
		if of.Kind() == reflect.Struct {
			keys = append(keys, keysBelow(path+".", of)...)
		}
	}
	return keys
}

// kindAt says in words what a path wants.
func kindAt(root reflect.Type, path string) string {
	t := typeAt(root, path)
	if t == nil {
		return "another kind of value"
	}
	return kindName(t)
}

func kindName(t reflect.Type) string {
	switch deref(t).Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list such as [a, b]"
	case reflect.Struct, reflect.Map:
		return "a mapping: keys with values, indented"
	}
	return "a text"
}
