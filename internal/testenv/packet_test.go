// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"
)

// The example of RFC 1071, 3.
func TestSum(t *testing.T) {
	data, _ := hex.DecodeString("0001f203f4f5f6f7")
	if got, want := Sum(data), ^uint16(0xddf2); got != want {
		t.Errorf("Sum is %#x, want %#x", got, want)
	}
	if got := Sum(data[:2], data[2:]); got != ^uint16(0xddf2) {
		t.Errorf("Sum of two parts is %#x", got)
	}
}

func TestFramesAreRight(t *testing.T) {
	const a, b = "192.0.2.1:1000", "198.51.100.2:80"
	for i, c := range []struct {
		Packet
		optionWords int
	}{
		{TCP(a, b, "S"), 0},
		{TCP(a, b, "PA").Payload("odd"), 0},
		{TCP(a, b, "A").Options(10), 10},
		{UDP(a, b, ""), 0},
		{UDP(a, b, "hello").NoChecksum(), 0},
		{UDP(a, b, "hello").Options(1).TTL(1), 1},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			frame := c.Frame()
			if err := CheckSums(frame); err != nil {
				t.Fatal(err)
			}
			src, dst, err := Ends(frame)
			if err != nil || src.String() != a || dst.String() != b {
				t.Errorf("from %s to %s, %v", src, dst, err)
			}
			if got := int(frame[etherHeader]&15) - 5; got != c.optionWords {
				t.Errorf("%d words of options, want %d", got, c.optionWords)
			}
			if !bytes.Equal(frame, c.Frame()) {
				t.Error("a second frame differs")
			}
		})
	}
}

// A check that finds no fault anywhere would be worth nothing.
func TestFaultsAreFound(t *testing.T) {
	good := TCP("192.0.2.1:1000", "198.51.100.2:80", "A").Payload("data").Frame()
	for at := etherHeader; at < len(good); at++ {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if CheckSums(bad) == nil {
			t.Errorf("byte %d changed, nobody saw", at)
		}
	}
}
