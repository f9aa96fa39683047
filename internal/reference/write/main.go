// SPDX-License-Identifier: Apache-2.0

// Command write writes the generated reference pages below a directory and
// removes pages there that are not made any more.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"imbang/internal/reference"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: write DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "write:", err)
		os.Exit(3)
	}
}

func write(dir string) error {
	made := map[string]bool{}
	for _, p := range reference.Pages() {
		path := filepath.Join(dir, p.Path)
		made[path] = true
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(p.Text), 0o644); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || made[path] {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && reference.IsGenerated(string(text)) {
			err = os.Remove(path)
		}
		return err
	})
}
