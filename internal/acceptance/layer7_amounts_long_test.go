// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package acceptance

import "time"

// backTime is how long HAProxy may be away after it was killed.
const backTime = time.Second

// layer7Amounts are those of make check-proxy.
func layer7Amounts() (reloads, changes, certificates, upgrades int) { return 100, 1000, 100, 20 }

// unsentShare of the requests, one of so many, may be missing from a constant rate.
const unsentShare = 100
