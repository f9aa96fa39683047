// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package acceptance

import "time"

// backTime is for a machine that is busy; make check-proxy has one second.
const backTime = 30 * time.Second

func layer7Amounts() (reloads, changes, certificates, upgrades int) { return 2, 7, 1, 1 }

// mostUnsent is the share of a constant rate's requests that may be missing: any, since requests of
// at most two seconds are under way, and HAProxy may be away for longer.
const mostUnsent = 1
