// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"

	"imbang/internal/host"
)

// tempDir makes the temporary directory of a run. Its name is one of the run's,
// so that a later run removes it if this one is killed (host.SweepFiles).
func tempDir(run host.Run) (string, error) {
	dir, err := os.MkdirTemp("", run.Name("files-"))
	if err != nil {
		return "", fmt.Errorf("temporary directory: %w", err)
	}
	return dir, nil
}
