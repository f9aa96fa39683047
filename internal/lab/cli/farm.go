// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/lab/distribution"
	"imbang/internal/lab/study"
)

// farm is the real servers of a replay.
type farm struct {
	servers, concurrency, backlog int
	speeds                        []float64
	weights                       []string
	distribution                  string
	service                       time.Duration // 0: by rho
	rho                           float64
}

func (f *farm) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.IntVar(&f.servers, "servers", 3, "real servers")
	fl.Float64SliceVar(&f.speeds, "speeds", []float64{1}, "speeds of servers, repeated if there are more servers")
	fl.StringSliceVar(&f.weights, "weights", []string{"1"}, "weights of servers, repeated if there are more servers; or the word speed: ten times the speed")
	fl.IntVar(&f.concurrency, "concurrency", 8, "requests that a server serves at a time")
	fl.IntVar(&f.backlog, "backlog", 0, "requests that may wait at a server before it replies 503; 0: no limit")
	fl.StringVar(&f.distribution, "law", string(distribution.Exponential), "distribution of service times: "+strings.Join(distribution.Names(), ", "))
	fl.DurationVar(&f.service, "service", 0, "mean service time of a server of speed 1 (default: by --rho)")
	fl.Float64Var(&f.rho, "rho", 0.7, "average utilisation of the servers at the highest --speed; gives a service time of at most "+mostService.String())
	c.MarkFlagsMutuallyExclusive("service", "rho")
}

// mostService keeps --rho from making servers slower than any of the web.
const mostService = 100 * time.Millisecond

// check refuses what cannot be, and is the servers' weights.
func (f *farm) check() ([]int32, error) {
	weights, err := deal(f.servers, study.MaxServers, f.speeds, f.weights)
	switch {
	case err != nil:
		return nil, err
	case slices.Max(weights) == 0:
		return nil, errors.New("--weights: all are 0, so no server takes connections: give one a weight of 1 or more")
	case slices.ContainsFunc(f.speeds, func(x float64) bool { return !(x > 0 && x <= 1000) }):
		return nil, errors.New("--speeds: want above 0 and at most 1000, 1 being the speed that --service is given for")
	case f.concurrency < 1 || f.concurrency > 100_000 || f.backlog < 0 || f.backlog > 1_000_000:
		return nil, errors.New("--concurrency, --backlog: want 1 to 100000 requests, and 0 to 1000000")
	case f.service < 0:
		return nil, fmt.Errorf("--service %v: want above 0", f.service)
	case !(f.rho > 0 && f.rho <= 10):
		return nil, fmt.Errorf("--rho %g: want above 0 and at most 10, 1 being all that the servers can serve", f.rho)
	}
	if _, err := distribution.Parse(f.distribution); err != nil {
		return nil, fmt.Errorf("--law: %w", err)
	}
	return weights, nil
}

// places is how many requests are served at a time, in those of a server of
// speed 1.
func (f *farm) places() (n float64) {
	for i := range f.servers {
		n += f.speeds[i%len(f.speeds)] * float64(f.concurrency)
	}
	return n
}

// time is the mean service time, at a rate.
func (f *farm) time(rate float64) time.Duration {
	if f.service > 0 {
		return f.service
	}
	exact := time.Duration(f.rho * f.places() / rate * float64(time.Second))
	return min(mostService, max(time.Microsecond, exact.Round(time.Microsecond)))
}

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
