// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package haproxytest

import "time"

// clientTime is for a client to notice that its connection has ended.
const clientTime = 50 * time.Millisecond
