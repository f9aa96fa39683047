// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package supervise

import "time"

// backTime is how long HAProxy may be away after it was killed.
const backTime = time.Second

// amounts are those of make check-proxy.
func amounts() (reloads, changes, certificates, upgrades int) { return 100, 1000, 100, 20 }
