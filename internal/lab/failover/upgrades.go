// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// upgrades are two builds of imbang, one of which takes the place of the other one.
type upgrades struct{ from, to string }

// install puts a program in another one's place, as a package does: those that run keep theirs.
func install(program, place string) (err error) {
	next := place + ".next"
	defer func() {
		if err != nil {
			_ = os.Remove(next)
			err = fmt.Errorf("install %s: %w", program, err)
		}
	}()
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(next, place)
}

// upgrade does what the maintainer script of the package does.
func (d *namespaced) upgrade(ctx context.Context) error {
	if d.upgrades != nil {
		if err := install(d.upgrades.to, d.imbang); err != nil {
			return err
		}
		d.upgraded = true
	}
	if _, err := d.command(ctx, "upgrade"); err != nil {
		return err
	}
	d.daemon.Stop()
	return errors.Join(d.startDaemon(ctx), d.vrrp.Signal(syscall.SIGUSR2))
}

// undoUpgrade brings the program and the data plane of an earlier trial back.
func (d *namespaced) undoUpgrade() error {
	if !d.upgraded {
		return nil
	}
	if err := install(d.upgrades.from, d.imbang); err != nil {
		return err
	}
	d.upgraded = false
	_, err := d.command(context.Background(), "upgrade")
	return err
}
