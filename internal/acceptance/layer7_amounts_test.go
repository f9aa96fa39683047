// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package acceptance

import "time"

// backTime is for a machine that is busy.
const backTime = 5 * time.Second

func layer7Amounts() (reloads, changes, certificates, upgrades int) { return 3, 14, 2, 2 }
