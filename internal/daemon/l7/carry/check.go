// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/readfile"
)

// Unusable are the files of a configuration that cannot be used, with the reasons.
func Unusable(c *l7.Config) map[string]error {
	errs := map[string]error{}
	for path, of := range sources(c) {
		text, _, err := readfile.Owned(path, maxCertificate)
		if err == nil {
			if err = of.validate(text, haproxy.MostOfPage(c)); err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
		}
		if err != nil {
			errs[path] = err
		}
	}
	return errs
}

// NoLogDirectories are the directories of access logs that do not exist.
func NoLogDirectories(c *l7.Config) (missing []string) {
	for _, l := range c.Listeners {
		if l.Log == nil || slices.Contains(missing, filepath.Dir(l.Log.File)) {
			continue
		}
		if _, err := os.Stat(filepath.Dir(l.Log.File)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, filepath.Dir(l.Log.File))
		}
	}
	return missing
}

// Check has HAProxy check a configuration as a Keeper of a directory would have it carried out: with
// the last good copy of a certificate that is damaged. It changes nothing.
func Check(ctx context.Context, dir, program string, c *l7.Config) (warnings []string, err error) {
	if program == "" {
		program = "haproxy"
	}
	if program, err = exec.LookPath(program); err != nil {
		return nil, err
	}
	v, err := haproxy.Detect(ctx, program)
	if err != nil {
		return nil, err
	}
	own, err := os.MkdirTemp(supervise.Checks(dir), "imbang-certificates-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(own)
	fresh := newCertificates(own)
	fresh.look(c)
	last := newCertificates(dir)
	last.wrong, last.kinds = fresh.wrong, fresh.kinds
	c, err = fresh.useBut(c, last)
	if err != nil {
		return nil, err
	}
	warnings, err = haproxy.Check(ctx, program, c, nil, options(dir, v, false))
	if err != nil {
		err = last.originals(fresh.originals(err))
	}
	return warnings, err
}
