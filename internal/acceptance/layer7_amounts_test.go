// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package acceptance

import "time"

// backTime is for a machine that is busy; make check-proxy has one second.
const backTime = 30 * time.Second

func layer7Amounts() (reloads, changes, certificates, upgrades int) { return 2, 7, 1, 1 }

// unsentShare of the requests, one of so many, may be missing from a constant rate.
const unsentShare = 2 // a machine that is busy
