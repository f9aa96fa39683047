// SPDX-License-Identifier: Apache-2.0

package haproxy

import "regexp"

// said is where a message goes on with HAProxy's own words, which quote its configuration.
var said = regexp.MustCompile(`(?m)(: HAProxy|started again and again): .*$`)

// Public is a message as every user of the host may read it: raw lines and values of headers may be
// secret. It names the objects at fault.
func Public(message string) string {
	return said.ReplaceAllString(message, "$1 (imbang status shows root and group imbang what it says)")
}
