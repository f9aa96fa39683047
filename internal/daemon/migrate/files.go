// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
)

// Files gives the contents of the files that a pattern names, in order, by name.
type Files func(pattern string) (names []string, contents [][]byte, err error)

// FilesIn reads what a keepalived.conf in a directory includes.
func FilesIn(dir string) Files {
	return func(pattern string) (names []string, contents [][]byte, err error) {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(dir, pattern)
		}
		if names, err = filepath.Glob(pattern); err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				return nil, nil, err
			}
			contents = append(contents, b)
		}
		return names, contents, nil
	}
}
