// SPDX-License-Identifier: Apache-2.0

package reference

import "maps"

// fieldTexts are all descriptions of keys. A test compares them with the types.
var fieldTexts = func() map[string]string {
	all := maps.Clone(directorFieldTexts)
	maps.Copy(all, labFieldTexts)
	maps.Copy(all, daemonFieldTexts)
	return all
}()
