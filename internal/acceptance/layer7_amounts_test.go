// SPDX-License-Identifier: Apache-2.0

//go:build !proxy

package acceptance

func layer7Amounts() (reloads, changes, certificates, upgrades int) { return 3, 14, 2, 2 }
