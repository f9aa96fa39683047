// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/director"
)

// registerLockTimeout adds --lock-timeout to all verbs.
func registerLockTimeout(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.Var(lockTimeout{}, "lock-timeout", fmt.Sprintf("how long to wait while another command has the table locked (default %v, or %s)",
		director.DefaultLockTimeout, director.LockTimeoutVariable))
}

// lockTimeout is the flag's value; the director keeps it.
type lockTimeout struct{}

func (lockTimeout) String() string { return "" }
func (lockTimeout) Type() string   { return "duration" }

func (lockTimeout) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("want a duration such as 500ms or 10s")
	}
	director.SetLockTimeout(d)
	return nil
}
