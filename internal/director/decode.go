// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"imbang/internal/bpfobj"
)

// decodeConn4 and decodeConn6 read a value of the connection tables, as bytes of
// the compiled layout.

func decodeConn4(b []byte) (bpfobj.LbConn6, error) {
	var c bpfobj.LbConn4
	if err := decode(b, &c); err != nil {
		return bpfobj.LbConn6{}, err
	}
	return widen(c), nil
}

func decodeConn6(b []byte) (c bpfobj.LbConn6, err error) {
	err = decode(b, &c)
	return c, err
}

func decode(b []byte, into any) error {
	if err := binary.Read(bytes.NewReader(b), binary.NativeEndian, into); err != nil {
		return fmt.Errorf("a value of the connection table: %w", err)
	}
	return nil
}
