// SPDX-License-Identifier: Apache-2.0

// Command imbang-ipvsadm is `imbang ipvsadm` by itself: a fifth of the program, which
// starts in less than half the time. Scripts and health checkers run it for
// every change of a weight.
package main

import (
	"os"

	"imbang/internal/ipvsadm/program"
)

func main() { os.Exit(program.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
