// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"testing"
)

// tryRequest reads a body as a request of one kind: it is refused with a status of its
// own, or understood.
func tryRequest[Q any](t *testing.T, body []byte) {
	t.Helper()
	understood := false
	err := with(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(body)), func(Q) (*OrderReply, error) {
		understood = true
		return &OrderReply{}, nil
	})
	var refused *refusal
	switch {
	case err == nil && !understood:
		t.Errorf("%q is accepted without being read", body)
	case err != nil && (!errors.As(err, &refused) || refused.status < 400 || refused.status > 499):
		t.Errorf("%q: %v", body, err)
	}
}

func FuzzRequests(f *testing.F) {
	for _, body := range []string{``, `{}`, `{"server":"a","action":"drain","deadline":1e300}`, `{"server":1}`, `{"force":true}{}`, `{"file":"\u0000"}`, `[`, `{"unknown":1}`, "null"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		tryRequest[OrderRequest](t, body)
		tryRequest[PlanRequest](t, body)
		tryRequest[ReloadRequest](t, body)
	})
}
