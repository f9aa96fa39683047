// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package acceptance

// layer7Amounts are those of make check-proxy.
func layer7Amounts() (reloads, changes, certificates, upgrades int) { return 100, 1000, 100, 20 }
