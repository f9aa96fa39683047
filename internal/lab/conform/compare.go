// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"imbang/internal/director"
)

// Difference is the first operation whose result is not the recorded one.
type Difference struct {
	Op   int // counted from 1
	What string
	Want string
	Got  string
}

func (d Difference) String() string {
	return fmt.Sprintf("operation %d %s: Linux %s, imbang %s", d.Op, d.What, d.Want, d.Got)
}

// compare holds the result of the i-th operation against the recorded one.
func compare(i int, op []json.RawMessage, want json.RawMessage, got any) (*Difference, error) {
	what, err := json.Marshal(op)
	if err != nil {
		return nil, err
	}
	have, err := json.Marshal(got)
	if err != nil {
		return nil, err
	}
	if compact(want) == string(have) {
		return nil, nil
	}
	return &Difference{i + 1, string(what), compact(want), string(have)}, nil
}

// compact drops the white space of JSON.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func isNotLoaded(err error) bool { return errors.Is(err, director.ErrNotLoaded) }
