// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
)

// room has the site of the trials, another one after a trial that failed, and of another
// place.
type room struct {
	programs Programs
	site     *site
	place    place
}

// at is the site of a place.
func (r *room) at(ctx context.Context, p Plan, at place) (*site, error) {
	// Directors do not take over connections of an earlier trial with servers that they no
	// longer have.
	if r.site != nil && r.place != at {
		if err := r.close(); err != nil {
			return nil, err
		}
	}
	if r.site == nil {
		s, err := newSite(ctx, r.programs, p.only(at.Setting), at.machines)
		if err != nil {
			return nil, err
		}
		r.site, r.place = s, at
	}
	return r.site, nil
}

func (r *room) try(ctx context.Context, p Plan, t *Trial, logs string) error {
	s, err := r.at(ctx, p, t.place())
	if err != nil {
		return err
	}
	if err := try(ctx, s, p, t, logs); err != nil {
		return errors.Join(err, r.close())
	}
	return nil
}

func (r *room) close() error {
	if r.site == nil {
		return nil
	}
	err := r.site.close()
	r.site = nil
	if err != nil {
		return fmt.Errorf("remove the directors and their networks: %w", err)
	}
	return nil
}
