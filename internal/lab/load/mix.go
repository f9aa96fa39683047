// SPDX-License-Identifier: Apache-2.0

package load

import "imbang/internal/lab/rng"

// odds are the choices of a run, shared by its clients and never changed.
// One that is not nil is to be made.
type odds struct {
	requests, urls, targets *rng.Choice
}

func newOdds(p Plan) (o odds) {
	if len(p.Requests) > 1 && len(p.Trace) == 0 {
		weights := make([]float64, len(p.Requests))
		for i, r := range p.Requests {
			weights[i] = r.Weight
		}
		o.requests = rng.NewChoice(weights)
	}
	if p.URLs > 0 {
		o.urls = rng.NewChoice(rng.Zipf(p.URLs, p.URLsExponent))
	}
	if len(p.Targets) > 1 && len(p.Trace) == 0 {
		o.targets = rng.NewChoice(rng.Zipf(len(p.Targets), p.TargetsExponent))
	}
	return o
}

// menu is what one client sends: the choices of the run, and the requests as
// far as they were needed. A replayed trace can have a great many.
type menu struct {
	odds
	plan   *Plan
	values values
	host   string // empty when it differs by target
	hosts  []string
	names  []int32 // of requests, index of labels
	labels []string
	forms  []*form
}

func newMenu(p *Plan, me int, o odds) *menu {
	m := &menu{
		odds: o, plan: p, values: values{client: int64(me)}, host: p.Host,
		names: make([]int32, len(p.Requests)), forms: make([]*form, len(p.Requests)),
	}
	known := map[string]int32{}
	for i, r := range p.Requests {
		at, ok := known[r.Name]
		if !ok {
			at = int32(len(m.labels))
			known[r.Name] = at
			m.labels = append(m.labels, r.Name)
		}
		m.names[i] = at
	}
	for _, t := range p.Targets {
		m.hosts = append(m.hosts, t.String())
	}
	if m.host == "" && len(m.hosts) == 1 {
		m.host = m.hosts[0]
	}
	return m
}

// choose makes the random choices of an arrival.
func (m *menu) choose(a *arrival) {
	if a.request == anyone {
		a.request = 0
		if m.requests != nil {
			a.request = m.requests.Pick(draw(m.plan.Seed, a.n, forRequest))
		}
	}
	if a.target == anyone {
		a.target = 0
		if m.targets != nil {
			a.target = m.targets.Pick(draw(m.plan.Seed, a.n, forTarget))
		}
	}
}

// write is the request of an arrival, in buf if it has to be made; last asks
// the server to close.
func (m *menu) write(a *arrival, last bool, buf []byte) (f *form, request, used []byte) {
	if f = m.forms[a.request]; f == nil {
		f = newForm(m.plan.Requests[a.request], m.names[a.request], m.host)
		m.forms[a.request] = f
	}
	v := &m.values
	v.n, v.host, v.last = a.n, m.hosts[a.target], last
	if m.urls != nil {
		v.url = 1 + int64(m.urls.Pick(draw(m.plan.Seed, a.n, forURL)))
	}
	request, used = f.render(buf, v)
	return f, request, used
}
