// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

const maxBody = 1 << 20 // of a reply that is looked at [bytes]

// judge compares a reply with what is expected of it. A body that nothing is expected of
// is not read.
func (one request) judge(ctx context.Context, reply *http.Response) error {
	if !one.statuses.has(reply.StatusCode) {
		want := one.Status
		if want == "" {
			want = defaultCodes
		}
		return fmt.Errorf("status %d, want %s", reply.StatusCode, want)
	}
	if one.expect == nil && one.Digest == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxBody+1))
	if err != nil {
		return err
	}
	if one.expect != nil {
		found, err := matches(ctx, one.expect, body[:min(len(body), maxBody)])
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("the body of %d bytes does not match %q", len(body), one.Expect)
		}
	}
	if one.Digest == "" {
		return nil
	}
	if len(body) > maxBody {
		return fmt.Errorf("the body is longer than %d KiB", maxBody>>10)
	}
	if sum := md5.Sum(body); !strings.EqualFold(hex.EncodeToString(sum[:]), one.Digest) {
		return fmt.Errorf("the body's MD5 digest is %x, want %s", sum, strings.ToLower(one.Digest))
	}
	return nil
}

// shortText is matched without a look at the time: that is faster, above all for literal
// texts, and takes at most tens of milliseconds [bytes].
const shortText = 16 << 10

// matches reports whether a text matches a regular expression. For 1 MiB that can take
// seconds, so a long text ends when the context does.
func matches(ctx context.Context, e *regexp.Regexp, text []byte) (bool, error) {
	if len(text) <= shortText {
		return e.Match(text), nil
	}
	found := e.MatchReader(&boundedText{Reader: bytes.NewReader(text), ctx: ctx})
	return found, ctx.Err() // what matched may have been only a part
}

// boundedText is a text that ends when a context does.
type boundedText struct {
	*bytes.Reader
	ctx   context.Context
	runes int // read
}

// ReadRune is io.RuneReader's.
func (t *boundedText) ReadRune() (r rune, size int, err error) {
	if t.runes++; t.runes%256 == 0 && t.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	return t.Reader.ReadRune()
}
