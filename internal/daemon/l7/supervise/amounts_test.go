// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package supervise

import "time"

// backTime is for a machine that is busy.
const backTime = 5 * time.Second

func amounts() (reloads, changes, certificates, upgrades int) { return 3, 12, 3, 1 }
