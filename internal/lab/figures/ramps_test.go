// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "draw the pictures anew")

// The picture of slow starts is that of the stored measurement.
func TestRampsImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, RampsFile))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Ramps(text)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(root, RampsImage)
	if *update {
		if err := os.WriteFile(image, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not of %s: make measure-slow-start", RampsImage, RampsFile)
	}
}

func TestRampsRefuses(t *testing.T) {
	for _, text := range []string{"", `{"runs":[{"scheduler":"rr","taken":[]}]}`, `{"connections_each_tenth":3,"runs":[{"scheduler":"rr","taken":[1]}]}`} {
		if image, err := Ramps([]byte(text)); err == nil {
			t.Errorf("%q: %s", text, image)
		}
	}
}
