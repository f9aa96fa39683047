// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package supervise

import "time"

// backTime is for a machine that is busy; make check-proxy has one second.
const backTime = 30 * time.Second

func amounts() (reloads, changes, certificates, upgrades int) { return 3, 12, 3, 1 }
