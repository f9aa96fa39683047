// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const maxBody = 1 << 20 // of a reply that is looked at [bytes]

// judge compares a reply with what is expected of it. A body that nothing is expected of
// is not read.
func (one request) judge(reply *http.Response) error {
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
	if one.expect != nil && !one.expect.Match(body[:min(len(body), maxBody)]) {
		return fmt.Errorf("the body of %d bytes does not match %q", len(body), one.Expect)
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
