// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"imbang/internal/director"
	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/distribution"
)

// Config is what to simulate.
type Config struct {
	Servers      []Server                  `json:"servers"`
	Concurrency  int                       `json:"concurrency"` // connections that a server serves at a time
	Backlog      int                       `json:"backlog"`     // that may wait for it; below 0: any number
	Distribution distribution.Distribution `json:"law"`         // the key of stored results
	Service      time.Duration             `json:"service_ns"`  // mean, at speed 1

	// A server has so many destinations at hand, and then needs HitShare of
	// the time; 0: there is nothing to have at hand.
	Cache    int     `json:"cache"`
	HitShare float64 `json:"hit_share"`

	Arrivals arrivals.Pattern `json:"arrivals"`
	Patience time.Duration    `json:"patience_ns"`

	Clients      int `json:"clients"`
	Destinations int `json:"destinations"`
	// Exponents of Zipf's law; 0: all are alike.
	ClientZipf      float64 `json:"client_zipf"`
	DestinationZipf float64 `json:"destination_zipf"`

	Schedulers  []string  `json:"schedulers"`
	Rates       []float64 `json:"rates"` // connections per second
	Connections int       `json:"connections"`
	Warmup      float64   `json:"warmup"` // share of them that is not counted
	Repeats     int       `json:"repeats"`
	Seed        uint64    `json:"seed"`

	Short bool `json:"short"` // leave out the packets that change nothing
	Jobs  int  `json:"jobs"`  // cells at a time

	// Progress, if set, hears of connections.
	Progress func(done, all int) `json:"-"`
}

// Server is a real server.
type Server struct {
	Speed  float64 `json:"speed"`
	Weight int32   `json:"weight"`
}

// Capacity is what the servers can serve at most [connections/s], with nothing
// at hand.
func (c *Config) Capacity() float64 {
	total := 0.0
	for _, s := range c.Servers {
		total += s.Speed
	}
	return total * float64(c.Concurrency) / c.Service.Seconds()
}

// Check refuses what cannot be simulated.
func (c *Config) Check() error {
	total := 0.0
	for i, s := range c.Servers {
		if !(s.Speed > 0) || s.Weight < 0 {
			return fmt.Errorf("server %d: speed %g, weight %d: want a speed above 0 and a weight of 0 or more", i, s.Speed, s.Weight)
		}
		total += float64(s.Weight)
	}
	for _, r := range c.Rates {
		if !(r > 0) || r > 1e8 {
			return fmt.Errorf("rate %g: want connections per second, above 0 and at most 100000000", r)
		}
	}
	within := func(what string, n, low, high int) error {
		if n < low || n > high {
			return fmt.Errorf("%s %d: want %d to %d", what, n, low, high)
		}
		return nil
	}
	switch {
	case total == 0:
		return errors.New("all weights are 0, so no server takes connections: give one a weight of 1 or more")
	case len(c.Schedulers) == 0 || len(c.Rates) == 0:
		return errors.New("want at least one scheduler and one rate")
	case c.Service <= 0:
		return fmt.Errorf("service time %s: want one above 0", c.Service)
	case !(c.Warmup >= 0 && c.Warmup < 1):
		return fmt.Errorf("warm-up %g: want a share of the connections from 0 to below 1", c.Warmup)
	case !(c.HitShare >= 0 && c.HitShare <= 1):
		return fmt.Errorf("hit share %g: want 0 to 1", c.HitShare)
	case c.Patience < 0:
		return fmt.Errorf("patience %s: want 0 (no limit) or more", c.Patience)
	case !(c.ClientZipf >= 0 && c.DestinationZipf >= 0):
		return errors.New("want exponents of Zipf's law of 0 or more")
	}
	return errors.Join(
		within("servers", len(c.Servers), 1, MaxServers),
		within("clients", c.Clients, 1, MaxClients),
		within("destinations", c.Destinations, 1, MaxDestinations),
		within("connections", c.Connections, 1, 1<<31-1),
		within("repeats", c.Repeats, 1, 1000),
		within("concurrency", c.Concurrency, 1, 1<<20),
		within("jobs", c.Jobs, 1, 1024),
	)
}

// longest is how long the data plane remembers a connection that is over:
// Linux's TIME_WAIT.
const longest = 2 * time.Minute

// tableSize is room for the connections that the data plane may have at once:
// those that are over and remembered, those that are being served and those
// that wait. Should more wait than is guessed here, they are lost, and said to
// be.
func (c *Config) tableSize() uint32 {
	const queue = 1000 // of a server that keeps pace
	rate := max(slices.Max(c.Rates), c.Arrivals.Shape.RampTo)
	waiting := float64(len(c.Servers)) * queue
	if c.Backlog >= 0 {
		waiting = float64(len(c.Servers)) * float64(c.Backlog)
	} else if c.Capacity() < 1.05*rate {
		waiting = float64(c.Connections)
	}
	open := float64(len(c.Servers))*float64(c.Concurrency) + waiting
	n := min(float64(c.Connections), 1.2*rate*(longest.Seconds()+1)+open)
	// Connections that are over stay until the next tick.
	return uint32(min(director.MaxConnections, n+4096))
}
