// SPDX-License-Identifier: Apache-2.0

// Command imbang-lab is the laboratory of imbang: it compares schedulers and
// directors, measures what they cost, and plays recorded scenarios of Linux's
// IPVS.
package main

import (
	"os"

	"imbang/internal/lab/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
