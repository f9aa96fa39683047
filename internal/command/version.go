// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/version"
)

// versionLine holds the program, its version, its revision and Go's version.
const versionLine = "%s %s (revision %s, %s)\n"

// unknown is the revision of a build that did not record it.
const unknown = "unknown"

// ParseVersion reads what the verb of NewVersion prints; the revision is "" if
// the program does not know it.
func ParseVersion(text string) (number, revision string, err error) {
	var program, goVersion string
	scannable := strings.NewReplacer("(", "", ")", "", ",", "").Replace(text)
	if _, err := fmt.Sscanf(scannable, "%s %s revision %s %s", &program, &number, &revision, &goVersion); err != nil {
		return "", "", fmt.Errorf("%q is not what the verb version of imbang prints", strings.TrimSpace(text))
	}
	if revision == unknown {
		revision = ""
	}
	return number, revision, nil
}

// Version is what the verb version prints as JSON.
type Version struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
}

// NewVersion is the verb that prints a program's version.
func NewVersion() *cobra.Command {
	var out OutputFlag
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			program := c.Root().Name()
			v := Version{program, version.Version, version.Revision(), runtime.Version()}
			return out.Print(c.OutOrStdout(), v, func(w io.Writer) error {
				_, err := io.WriteString(w, versionText(program))
				return err
			})
		},
	}
	out.Register(c, One[Version](""))
	return c
}

// versionText is what the verb version and the flag --version print.
func versionText(program string) string {
	return fmt.Sprintf(versionLine, program, version.Version, cmp.Or(version.Revision(), unknown), runtime.Version())
}
