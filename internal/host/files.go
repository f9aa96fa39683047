// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MakeSecret makes a directory that only root may enter, and those above it that are missing,
// which all users may enter: members of a group use the daemon's socket below /run/imbang.
func MakeSecret(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o700)
}

// AsRoot adds the remedy to the error of a file or socket that this user may not use.
func AsRoot(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; run it as root, with sudo", err)
	}
	return err
}
