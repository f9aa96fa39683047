// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"strings"

	"imbang/internal/model"
)

// ServiceID names what has servers: a virtual service by its key, or a backend of layer 7 by its
// name.
type ServiceID struct {
	Key     model.ServiceKey // the zero value: of a backend
	Backend string           // "": of a virtual service
}

// backendPrefix begins the text of a backend; that of a key has no space.
const backendPrefix = "backend "

// String is what ParseServiceID reads.
func (s ServiceID) String() string {
	if s.Backend != "" {
		return backendPrefix + s.Backend
	}
	return s.Key.String()
}

// words are the name in a message.
func (s ServiceID) words() string {
	if s.Backend != "" {
		return s.String()
	}
	return "service " + s.String()
}

// Compare orders virtual services before backends.
func (s ServiceID) Compare(o ServiceID) int {
	a, b := s.Key, o.Key
	return cmp.Or(strings.Compare(s.Backend, o.Backend), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
		cmp.Compare(a.Mark, b.Mark), cmp.Compare(a.Family, b.Family))
}

// ParseServiceID reads what String writes.
func ParseServiceID(text string) (ServiceID, error) {
	if name, is := strings.CutPrefix(text, backendPrefix); is && name != "" {
		return ServiceID{Backend: name}, nil
	}
	k, err := model.ParseServiceKey(text)
	return ServiceID{Key: k}, err
}
