// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"testing"

	"imbang/internal/lab/bench"
)

// A file comes through the director as it is, GSO super-packets and all. How
// fast is for `imbang bench bulk` to say.
func TestLargeDownloadIsIntact(t *testing.T) {
	needRoot(t)
	r, err := bench.Bulk(context.Background(), bench.BulkConfig{Megabytes: 100, Pairs: 1, Executable: executable})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Intact {
		t.Error("the file is not what the server has")
	}
	t.Logf("%.0f MB/s through the director, %.0f MB/s without", r.Imbang.Median, r.Direct.Median)
}
