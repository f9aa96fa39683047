// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
)

// bySpeed is the word that gives servers weights by their speeds.
const bySpeed = "speed"

// deal deals weights to n servers, in turns as it is done with their speeds.
func deal(n, most int, speeds []float64, weights []string) (list []int32, err error) {
	switch {
	case n < 1 || n > most:
		return nil, fmt.Errorf("--servers %d: want 1 to %d", n, most)
	case len(speeds) == 0 || len(weights) == 0:
		return nil, errors.New("--speeds and --weights: want at least one")
	}
	for i := range n {
		text := weights[i%len(weights)]
		if text == bySpeed {
			list = append(list, int32(min(65535, max(1, 10*speeds[i%len(speeds)]+0.5))))
			continue
		}
		w, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("--weights: %q: want whole numbers from 0 to 65535, or %s", text, bySpeed)
		}
		list = append(list, int32(w))
	}
	return list, nil
}
