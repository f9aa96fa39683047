// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Sibling is the path of another program of imbang: the one of that name in
// the directory of this program's own file (symbolic links resolved), which is
// built from the same tree, else the first one in PATH.
func Sibling(name string) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program's own file: %w", err)
	}
	if real, err := filepath.EvalSymlinks(own); err == nil {
		own = real
	}
	beside := filepath.Join(filepath.Dir(own), name)
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the program %s is neither %s nor in PATH: install it beside %s (make install), or build both (make build)",
			name, beside, filepath.Base(own))
	}
	return filepath.Abs(path)
}
