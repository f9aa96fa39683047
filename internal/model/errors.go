// SPDX-License-Identifier: Apache-2.0

package model

import "errors"

// What a table edit can be refused for. The director wraps these with the
// object's name; the ipvsadm personality maps them to Linux's words.
var (
	ErrServiceExists  = errors.New("service already exists")
	ErrNoService      = errors.New("no such service")
	ErrServerExists   = errors.New("real server already exists")
	ErrNoServer       = errors.New("no such real server")
	ErrNoScheduler    = errors.New("no such scheduler or persistence engine")
	ErrThresholdRange = errors.New("the lower threshold is above the upper one")
	ErrTableFull      = errors.New("the table is full")
	ErrInvalid        = errors.New("invalid argument")
)
