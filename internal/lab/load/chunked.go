// SPDX-License-Identifier: Apache-2.0

package load

// parseChunkSize reads the line before a chunk: hexadecimal digits, then
// perhaps extensions, which are ignored (RFC 9112, 7.1.1). Size 0 ends the
// content; trailers follow.
func (r *reply) parseChunkSize(line []byte) error {
	var n int64
	digits := 0
	for _, c := range line {
		v := hex(c)
		if v < 0 {
			break
		}
		if digits == 15 { // keeps n below 2^60
			return errMalformed
		}
		n = n<<4 | v
		digits++
	}
	if digits == 0 || (digits < len(line) && line[digits] != ';' && line[digits] != ' ' && line[digits] != '\t') {
		return errMalformed
	}
	r.remain, r.phase = n, chunkData
	if n == 0 {
		r.phase = trailerLine
	}
	return nil
}

// hex is the value of a hexadecimal digit, -1 for any other byte.
func hex(c byte) int64 {
	switch {
	case '0' <= c && c <= '9':
		return int64(c - '0')
	case 'a' <= c && c <= 'f':
		return int64(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int64(c-'A') + 10
	}
	return -1
}
