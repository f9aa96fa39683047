// SPDX-License-Identifier: Apache-2.0

// Command imbang is a Linux Virtual Server in eBPF. Called as ipvsadm or
// imbang-ipvsadm, it is ipvsadm.
package main

import (
	"os"

	"imbang/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
