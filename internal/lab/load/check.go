// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"imbang/internal/lab/arrivals"
)

// maxNamed bounds the number of request names: each has a histogram.
const maxNamed = 100

// Validate reports the first field that cannot be run, and its remedy.
func (p Plan) Validate() error { return p.withDefaults().validate() }

// validate reports the first field that cannot be run, and its remedy. p has
// its defaults.
func (p Plan) validate() error {
	for _, check := range []func() error{
		p.validateTargets, p.validateLoop, p.validateEnds, p.validateRequests, p.validateText, p.validateSources,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (p Plan) validateTargets() error {
	for _, t := range p.Targets {
		switch {
		case !t.IsValid() || t.Port() == 0:
			return fmt.Errorf("target %s: want an address and a port", t)
		case t.Addr().Zone() != "":
			return fmt.Errorf("target %s: zones are not supported, use a global address", t)
		case t.Addr().Unmap().Is4() != p.Target.Addr().Unmap().Is4():
			return fmt.Errorf("target %s: want the family of target %s", t, p.Target)
		}
	}
	if !exponent(p.TargetsExponent) || !exponent(p.URLsExponent) {
		return fmt.Errorf("exponents %g and %g: want 0 to 10", p.TargetsExponent, p.URLsExponent)
	}
	return nil
}

func exponent(s float64) bool { return s >= 0 && s <= 10 }

// validateLoop checks what makes requests come: a rate, users or a trace.
func (p Plan) validateLoop() error {
	if p.Arrivals != arrivals.Constant && p.Arrivals != arrivals.Poisson {
		return fmt.Errorf("%s: want constant or poisson", p.Arrivals)
	}
	switch {
	case p.Concurrency < 0 || p.Concurrency > 1e6:
		return fmt.Errorf("concurrency %d: want at most 1e6 users", p.Concurrency)
	case p.Concurrency > 0 && (p.Rate != 0 || len(p.Trace) > 0):
		return errors.New("give one of rate, concurrency and a trace: users of a closed loop make their own rate")
	case p.Concurrency > 0 && p.Shape != arrivals.Shape{}:
		return errors.New("a closed loop has no arrivals that could have a shape")
	case p.Concurrency > 0:
		return nil
	case p.Think != 0:
		return errors.New("think time: only users of a closed loop think, give a concurrency")
	case !(p.Rate > 0 && p.Rate <= 1e7):
		return fmt.Errorf("rate %g: want above 0 and at most 1e7 connections per second", p.Rate)
	case len(p.Trace) > 0:
		return p.validateTrace()
	}
	return p.Shape.Validate()
}

// validateEnds checks what ends the run and its connections.
func (p Plan) validateEnds() error {
	switch {
	case p.Connections < 0 || p.Duration < 0:
		return errors.New("give one of connections and duration, above 0")
	case len(p.Trace) > 0 && p.Connections > 0:
		return errors.New("a trace has its own number of requests: give no connections")
	case len(p.Trace) == 0 && (p.Connections > 0) == (p.Duration > 0):
		return errors.New("give one of connections and duration, above 0")
	case p.Warmup < 0 || p.Timeout < 0 || p.Grace < 0 || p.Linger < 0 || p.Think < 0:
		return errors.New("warmup, timeout, grace, linger and think cannot be negative")
	case p.Closing != ServerFirst && p.Closing != ClientFirst:
		return fmt.Errorf("closing %d: want ServerFirst or ClientFirst", p.Closing)
	case p.RequestsPerConnection < Unlimited || p.RequestsPerConnection > math.MaxInt32:
		return fmt.Errorf("requests per connection %d: want 1 or more, or %d for no limit", p.RequestsPerConnection, Unlimited)
	}
	return nil
}

func (p Plan) validateRequests() error {
	if p.URLs < 0 || p.URLs > 1e7 {
		return fmt.Errorf("urls %d: want at most 1e7", p.URLs)
	}
	names, weight := map[string]bool{}, 0.0
	for _, r := range p.Requests {
		if err := r.validate(); err != nil {
			return err
		}
		if p.URLs == 0 && (strings.Contains(r.Path, "{url}") || strings.Contains(r.Body, "{url}")) {
			return fmt.Errorf("request %s: {url} needs the number of URLs", r.label())
		}
		weight += r.Weight
		names[r.Name] = true
	}
	switch {
	case !(weight > 0 && weight <= math.MaxFloat64):
		return errors.New("requests: the weights add up to nothing")
	case len(names) > maxNamed:
		return fmt.Errorf("requests have %d names, at most %d are counted separately: give some the same name", len(names), maxNamed)
	}
	return nil
}

func (p Plan) validateSources() error {
	for i, c := range p.Clients {
		for _, s := range c.Sources {
			if !s.IsValid() || s.Zone() != "" || s.Unmap().Is4() != p.Target.Addr().Unmap().Is4() {
				return fmt.Errorf("client %d: source %s: want the family of target %s, without a zone", i, s, p.Target)
			}
		}
	}
	return nil
}

// validateText guards the request head: nothing given may end a line or a
// word of it.
func (p Plan) validateText() error {
	if err := word("host", p.Host); err != nil {
		return err
	}
	if err := word("server header", p.ServerHeader); err != nil {
		return err
	}
	if strings.Contains(p.ServerHeader, ":") {
		return fmt.Errorf("server header %q: the name only, without the colon", p.ServerHeader)
	}
	return nil
}

// word reports text that would not stay one word of a header.
func word(name, text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%s %q: no spaces or control characters", name, text)
	}
	return nil
}
