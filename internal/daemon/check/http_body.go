// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// Limits of a reply's body [bytes]. It is not kept in memory, but an endless one would use a CPU until the
// timeout.
const (
	maxBody    = 16 << 20 // that is looked at
	maxSkipped = 1 << 20  // that is read to keep the connection
)

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
	limited, sum := &io.LimitedReader{R: reply.Body, N: maxBody}, md5.New()
	body := io.Reader(limited)
	if one.Digest != "" {
		body = io.TeeReader(body, sum)
	}
	if one.expect != nil {
		found, err := matches(ctx, one.expect, body)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("the body does not match %q (%d bytes read)", one.Expect, maxBody-limited.N)
		}
	}
	if one.Digest == "" {
		return nil
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return err
	}
	if n, _ := reply.Body.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("the body is longer than %d MiB", maxBody>>20)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, one.Digest) {
		return fmt.Errorf("the body's MD5 digest is %s, want %s", got, strings.ToLower(one.Digest))
	}
	return nil
}

// shortText is matched without a look at the time: that is faster, above all for literal
// texts, and takes at most tens of milliseconds [bytes].
const shortText = 16 << 10

// matches reports whether a text matches a regular expression. For 1 MiB that can take
// seconds, so a long text ends when the context does.
func matches(ctx context.Context, e *regexp.Regexp, text io.Reader) (bool, error) {
	short, err := io.ReadAll(io.LimitReader(text, shortText))
	if err != nil {
		return false, err
	}
	if len(short) < shortText {
		return e.Match(short), nil
	}
	long := &boundedText{Reader: bufio.NewReader(io.MultiReader(bytes.NewReader(short), text)), ctx: ctx}
	found := e.MatchReader(long)
	return found, errors.Join(long.err, ctx.Err()) // what matched may have been only a part
}

// boundedText is a text that ends when a context does.
type boundedText struct {
	*bufio.Reader
	ctx   context.Context
	runes int   // read
	err   error // of the reader
}

// ReadRune is io.RuneReader's.
func (t *boundedText) ReadRune() (r rune, size int, err error) {
	if t.runes++; t.runes%256 == 0 && t.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	if r, size, err = t.Reader.ReadRune(); err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return r, size, err
}
