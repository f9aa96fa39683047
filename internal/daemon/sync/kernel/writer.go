// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Writer collects records into one datagram.
type Writer struct {
	version, syncID uint8
	limit           int // [bytes] of the datagram
	records         int
	b               []byte
}

// Errors of records that a message cannot tell.
var (
	ErrFamily = errors.New("addresses of different families, or IPv6 in version 0")
	ErrEngine = errors.New("a persistence engine that does not fit: a long name or long data")
)

// NewWriter begins a datagram of at most limit bytes (--sync-maxlen, with the header). A
// record that does not fit alone gets a datagram that is longer, as
// ip_vs_sync_buff_create makes it.
func NewWriter(version, syncID uint8, limit int) (*Writer, error) {
	if version > Version1 {
		return nil, fmt.Errorf("version %d: want 0 or 1", version)
	}
	if limit < 1 || limit > 0xffff {
		return nil, fmt.Errorf("%d bytes: want 1 to 65535", limit)
	}
	w := &Writer{version: version, syncID: syncID, limit: limit}
	w.reset(0)
	return w, nil
}

// reset begins a datagram; size is how long it may be expected to get.
func (w *Writer) reset(size int) {
	w.b, w.records = make([]byte, w.header(), max(w.header(), size)), 0
}

func (w *Writer) header() int {
	if w.version == Version0 {
		return header0
	}
	return header1
}

// Add appends a record; false if the datagram has no room for it, and is to be taken first.
func (w *Writer) Add(r *Record) (bool, error) {
	client := r.Client.Addr()
	if !client.IsValid() || client.Is4() != r.Virtual.Addr().Is4() || client.Is4() != r.Server.Addr().Is4() ||
		!r.Virtual.Addr().IsValid() || !r.Server.Addr().IsValid() || w.version == Version0 && !client.Is4() {
		return false, ErrFamily
	}
	if len(r.Engine) > MaxEngine || len(r.EngineData) > MaxEngineData {
		return false, ErrEngine
	}
	if w.records == MaxRecords {
		return false, nil
	}
	before := len(w.b)
	if w.version == Version0 {
		w.b = r.append0(w.b)
	} else {
		for len(w.b)%4 != 0 { // all but the last are padded
			w.b = append(w.b, 0)
		}
		w.b = r.append1(w.b)
	}
	if len(w.b) > w.limit && w.records > 0 {
		w.b = w.b[:before]
		return false, nil
	}
	w.records++
	return true, nil
}

// Version is that of the datagrams.
func (w *Writer) Version() uint8 { return w.version }

// Records is how many the datagram has.
func (w *Writer) Records() int { return w.records }

// Take returns the datagram and begins the next one. It is nil if there is no record.
func (w *Writer) Take() []byte {
	if w.records == 0 {
		return nil
	}
	w.b[1] = w.syncID
	binary.BigEndian.PutUint16(w.b[2:], uint16(len(w.b)))
	if w.version == Version0 {
		w.b[0] = byte(w.records)
	} else {
		w.b[4], w.b[5] = byte(w.records), Version1
	}
	b := w.b
	w.reset(len(b))
	return b
}
