// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package supervise

func amounts() (reloads, changes, certificates, upgrades int) { return 3, 12, 3, 1 }
