// SPDX-License-Identifier: Apache-2.0

package check

import "reflect"

// Kinds is the registry: a field for each kind of check, under the key that it has
// in a configuration. Exactly one field of a check is set.
type Kinds struct {
	TCP    *TCP    `yaml:"tcp" jsonschema_description:"connects to the server's port"`
	TLS    *TLS    `yaml:"tls" jsonschema_description:"connects and completes a TLS handshake"`
	HTTP   *HTTP   `yaml:"http" jsonschema_description:"HTTP requests, one after the other; with tls also HTTPS"`
	ICMP   *ICMP   `yaml:"icmp" jsonschema_description:"sends an ICMP echo request"`
	UDP    *UDP    `yaml:"udp" jsonschema_description:"sends a datagram"`
	Script *Script `yaml:"script" jsonschema_description:"runs a program, whose exit status decides"`
	Agent  *Agent  `yaml:"agent" jsonschema_description:"connects to an agent on the server, by HAProxy's agent-check protocol"`
}

// KindNames are the keys of all kinds.
func KindNames() (names []string) {
	t := reflect.TypeFor[Kinds]()
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return names
}

// Given are the kinds that are set, by name.
func (k *Kinds) Given() (names []string, specs []Spec) {
	v := reflect.ValueOf(k).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsNil() {
			names = append(names, v.Type().Field(i).Tag.Get("yaml"))
			specs = append(specs, f.Interface().(Spec))
		}
	}
	return names, specs
}
