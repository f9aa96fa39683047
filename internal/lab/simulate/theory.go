// SPDX-License-Identifier: Apache-2.0

package simulate

import "math"

// What queueing theory says of the mean time in the system, for arrivals at
// random at `rate` and a mean service time [s]. Kleinrock, Queueing Systems,
// volume 1.

// mm1 is one server with exponential service.
func mm1(rate, service float64) float64 { return service / (1 - rate*service) }

// md1 is one server with constant service (Pollaczek and Khinchine).
func md1(rate, service float64) float64 {
	rho := rate * service
	return service + rho*service/(2*(1-rho))
}

// mmc is one queue for c servers (Erlang's C).
func mmc(rate, service float64, c int) float64 {
	a := rate * service
	term, below := 1.0, 0.0
	for k := range c {
		below += term
		term *= a / float64(k+1)
	}
	wait := term / (1 - a/float64(c))
	wait /= below + wait
	return service + wait*service/(float64(c)-a)
}

// em1 is one server to which every n-th of all arrivals goes, as rr deals them:
// Erlang arrivals, exponential service (G/M/1).
func em1(rate, service float64, n int) float64 {
	mu := 1 / service
	s := 0.5 // the root below 1 of s = A*(mu - mu s)
	for range 10000 {
		s = math.Pow(rate/(rate+mu*(1-s)), float64(n))
	}
	return service / (1 - s)
}

// erlangB is the share of arrivals that find all of c servers busy and go.
func erlangB(rate, service float64, c int) float64 {
	a := rate * service
	b := 1.0
	for k := 1; k <= c; k++ {
		b = a * b / (float64(k) + a*b)
	}
	return b
}
