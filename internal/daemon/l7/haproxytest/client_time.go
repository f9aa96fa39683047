// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package haproxytest

import "time"

// clientTime is for a machine that is busy; make check-proxy has a tenth of it.
const clientTime = 500 * time.Millisecond
