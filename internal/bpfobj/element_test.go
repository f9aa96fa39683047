// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The data plane changes elements of maps by bpf/element.h alone, which has the result used.
func TestElementsAreChangedInOnePlace(t *testing.T) {
	change := regexp.MustCompile(`bpf_map_(update|delete)_elem\(`)
	var headers []string
	for _, pattern := range []string{"*.h", "*.c", "sched/*.h", "forward/*.h", "table/*.h"} {
		found, err := filepath.Glob(filepath.Join("../../bpf", pattern))
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, found...)
	}
	if len(headers) == 0 {
		t.Fatal("no headers")
	}
	for _, header := range headers {
		if name := filepath.Base(header); name == "element.h" || name == "stage.h" {
			continue
		}
		text, err := os.ReadFile(header)
		if err != nil {
			t.Fatal(err)
		}
		if change.Match(text) {
			t.Errorf("%s changes a map by itself: use map_update or map_delete", header)
		}
	}
}
