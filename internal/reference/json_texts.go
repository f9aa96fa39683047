// SPDX-License-Identifier: Apache-2.0

package reference

import "maps"

// fieldTexts are all descriptions of keys. A test compares them with the types.
var fieldTexts = func() map[string]string {
	all := maps.Clone(directorFieldTexts)
	maps.Copy(all, labFieldTexts)
	maps.Copy(all, daemonFieldTexts)
	maps.Copy(all, vrrpFieldTexts)
	maps.Copy(all, failoverFieldTexts)
	maps.Copy(all, layer7FieldTexts)
	maps.Copy(all, commandFieldTexts)
	return all
}()

// commandFieldTexts are those of package command, which both programs print.
var commandFieldTexts = map[string]string{
	"command.Version.program":  "the program's name",
	"command.Version.version":  "the nearest tag or the abbreviated commit",
	"command.Version.revision": "the whole commit, with -dirty if the tree had other changes; absent if the build did not record it",
	"command.Version.go":       "version of the Go compiler",
}
