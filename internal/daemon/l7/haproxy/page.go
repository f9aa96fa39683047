// SPDX-License-Identifier: Apache-2.0

package haproxy

import "imbang/internal/daemon/l7"

// MostOfPage is how many bytes a file may have that is sent to clients.
func MostOfPage(c *l7.Config) int { return (&render{Config: c}).bufferSize() - 2*rewrite }
