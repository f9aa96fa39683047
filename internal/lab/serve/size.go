// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
)

// sized begins the paths that say how long a station's reply is to be.
const sized = "/bytes/"

// filling is what replies are made of. It is not made before there is one: no
// command shall start later for it.
var filling = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("x"), 64<<10) })

// Sized is a path below which a station answers with a number of bytes. Of what
// follows in a path it takes no notice.
func Sized(n int64) string { return sized + strconv.FormatInt(n, 10) }

// sizeOf is what a path says of its reply, if it does.
func sizeOf(path string) (n int64, ok bool) {
	rest, ok := strings.CutPrefix(path, sized)
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n >= 0
}
