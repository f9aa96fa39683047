// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"imbang/internal/jsonfile"
)

// entry is a line of the file. One without an order is of orders that ended.
type entry struct {
	Service string `json:"service"`
	Server  string `json:"server"`
	State
	Order *Version `json:"order,omitempty"` // nil: from before orders had versions
}

type file struct {
	Version int     `json:"version"`
	Origin  string  `json:"origin,omitempty"`
	Servers []entry `json:"servers"`
}

const version = 1

// Load reads what was ordered. There is nothing in a file that does not exist.
func Load(path string) (*Ledger, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return NewLedger(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("operator state: %w", err)
	}
	l, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("operator state %s: %w (correct the file, or remove it: then nothing is drained, in maintenance or weighed by hand)", path, err)
	}
	return l, nil
}

func parse(text []byte) (*Ledger, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Version != version {
		return nil, fmt.Errorf("version %d, want %d", f.Version, version)
	}
	l := NewLedger()
	if f.Origin != "" {
		l.Origin = f.Origin
	}
	for _, e := range f.Servers {
		k, err := ParseServiceID(e.Service)
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(e.Server)
		if err != nil {
			return nil, err
		}
		if e.Weight != nil && e.Weight.Weight < 0 {
			return nil, fmt.Errorf("%s: weight %d", ServerID{k, at}, e.Weight.Weight)
		}
		one := Entry{State: e.State}
		if e.Order != nil {
			one.Version = *e.Order
		} else {
			one.Version = Version{Origin: l.Origin} // earlier than any
		}
		if one.Stamp < 0 || one.Stamp > maxStamp {
			return nil, fmt.Errorf("%s: time of the order %d ms: want 0 to %d", ServerID{k, at}, one.Stamp, int64(maxStamp))
		}
		l.Entries[ServerID{k, at}] = one
	}
	return l, nil
}

func (l *Ledger) file() file {
	f := file{Version: version, Origin: l.Origin, Servers: []entry{}}
	for _, id := range l.ids() {
		one := l.Entries[id]
		f.Servers = append(f.Servers, entry{id.Service.String(), id.Server.String(), one.State, &one.Version})
	}
	return f
}

// Save writes a ledger, whole or not at all.
func (l *Ledger) Save(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = jsonfile.Write(path, l.file())
	}
	if err != nil {
		return fmt.Errorf("operator state: %w", err)
	}
	return nil
}

// Encode is a ledger as it is sent to another director.
func (l *Ledger) Encode() ([]byte, error) { return json.Marshal(l.file()) }

// Decode reads a ledger that another director sent.
func Decode(text []byte) (*Ledger, error) {
	l, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("orders of the peer: %w", err)
	}
	return l, nil
}

func (l *Ledger) ids() (ids []ServerID) {
	for id := range l.Entries {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, ServerID.Compare)
	return ids
}
