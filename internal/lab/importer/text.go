// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxBytes is the longest output that is read; siege and httperf can list
// every reply.
const MaxBytes = 64 << 20

// line is one line of a file.
type line struct {
	number int // from 1
	text   string
}

const escapes = "\x1b\\[[0-9;]*[A-Za-z]"

// readLines splits a text into lines without their ends, colours and a
// terminal's ^C. Progress that overwrote itself by carriage returns becomes
// several lines with one number.
func readLines(r io.Reader) ([]line, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > MaxBytes:
		return nil, fmt.Errorf("longer than %d MB: cut it to the tool's summary", MaxBytes>>20)
	case bytes.HasPrefix(b, []byte{0xff, 0xfe}) || bytes.HasPrefix(b, []byte{0xfe, 0xff}):
		return nil, errors.New("UTF-16 text: convert it with iconv -f UTF-16 -t UTF-8")
	case len(bytes.TrimSpace(b)) == 0:
		return nil, errors.New("empty: store what the tool prints with TOOL ... >FILE 2>&1")
	case bytes.IndexByte(b, 0) >= 0:
		return nil, errors.New("binary: give the text that the tool printed")
	}
	var lines []line
	text := strings.TrimPrefix(string(b), "\ufeff")
	for i, whole := range strings.Split(text, "\n") {
		for _, part := range strings.Split(strings.TrimRight(whole, "\r"), "\r") {
			part = pattern(escapes).ReplaceAllString(part, "")
			lines = append(lines, line{i + 1, strings.TrimRight(strings.TrimPrefix(part, "^C"), " \t")})
		}
	}
	return lines, nil
}
