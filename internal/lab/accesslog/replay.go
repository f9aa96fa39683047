// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/rng"
)

// Options say what of a log is replayed, and how.
type Options struct {
	// Speed divides all times: 2 is twice as fast. 1 by default.
	Speed float64
	// From and Until bound the part of the log, counted from its first
	// entry; Until 0 is its end.
	From, Until time.Duration
	// Methods are those that are sent. By default GET and HEAD: a log does
	// not hold the content of the others, and they change what they touch.
	Methods []string
	// Uniform puts the requests of a second at independent random instants
	// of it, drawn from Seed, which is what a Poisson stream with as many
	// arrivals does. By default they are spread evenly: the j-th of k
	// comes at (j-1/2)/k of the second.
	Uniform bool
	Seed    uint64
	// Path, if given, is asked for in the place of an entry's target, as for
	// a page of the same size.
	Path func(Entry) string
}

// Trace is a log as a load.
type Trace struct {
	// Events and Requests are those of a load.Plan. Requests are named by
	// their method. An event's source is the number of the client, in the
	// order of their first request, so that a client keeps its address.
	Events   []load.Event
	Requests []load.Request
	Clients  []string
	Bytes    int64 // of the replies in the log
	// Skipped counts entries that are not sent, by the reason.
	Skipped map[string]int
	Began   time.Time // the second of the first request that is sent
	Length  time.Duration
	Busiest int // requests of one second of the log
}

// Reasons of Trace.Skipped; other methods are named themselves.
const (
	NoRequest = "no HTTP request"
	NoPath    = "no path"
)

// Replay makes a load of a log.
func Replay(l *Log, o Options) (*Trace, error) {
	if o.Speed == 0 {
		o.Speed = 1
	}
	if len(o.Methods) == 0 {
		o.Methods = []string{"GET", "HEAD"}
	}
	switch {
	case !(o.Speed > 0 && o.Speed <= 1e6):
		return nil, fmt.Errorf("replay: speed %g: want above 0 and at most 1e6", o.Speed)
	case o.From < 0 || o.Until < 0 || (o.Until > 0 && o.Until <= o.From):
		return nil, fmt.Errorf("replay: from %s until %s: want the second after the first", o.From, o.Until)
	}
	r := replayer{Options: o, rand: rng.Stream(o.Seed), clients: map[string]int32{}, requests: map[request]int32{}}
	return r.run(l.Entries)
}

// request is what makes two entries ask for the same.
type request struct{ method, path string }

// replayer is a conversion in progress.
type replayer struct {
	Options
	rand     *rand.Rand
	trace    Trace
	clients  map[string]int32
	requests map[request]int32
}

func (r *replayer) run(entries []Entry) (*Trace, error) {
	r.trace.Skipped = map[string]int{}
	if len(entries) > 0 {
		begin := entries[0].Time
		entries = slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
			at := e.Time.Sub(begin)
			return at < r.From || (r.Until > 0 && at >= r.Until)
		})
	}
	var second []load.Event
	for i, e := range entries {
		if event, ok := r.event(e); ok {
			second = append(second, event)
		}
		if i+1 == len(entries) || !entries[i+1].Time.Equal(e.Time) {
			r.spread(second, e.Time)
			second = second[:0]
		}
	}
	if len(r.trace.Events) == 0 {
		return nil, fmt.Errorf("replay: no request of this part of the log is sent%s: choose another part or more methods", r.trace.skipped())
	}
	r.trace.Length = r.trace.Events[len(r.trace.Events)-1].At
	return &r.trace, nil
}

// event is one entry without its time, if it is sent.
func (r *replayer) event(e Entry) (load.Event, bool) {
	skip := ""
	path := ""
	switch {
	case e.Method == "":
		skip = NoRequest
	case !slices.Contains(r.Methods, e.Method):
		skip = e.Method
	default:
		path = PathOf(e.Target)
		if r.Path != nil {
			path = r.Path(e)
		}
		if path == "" {
			skip = NoPath
		}
	}
	if skip != "" {
		r.trace.Skipped[skip]++
		return load.Event{}, false
	}
	r.trace.Bytes += e.Bytes
	return load.Event{Source: r.client(e.Client), Request: r.request(request{e.Method, path})}, true
}

func (r *replayer) client(name string) int32 {
	i, ok := r.clients[name]
	if !ok {
		i = int32(len(r.trace.Clients))
		r.clients[name] = i
		r.trace.Clients = append(r.trace.Clients, name)
	}
	return i
}

func (r *replayer) request(q request) int32 {
	i, ok := r.requests[q]
	if !ok {
		i = int32(len(r.trace.Requests))
		r.requests[q] = i
		r.trace.Requests = append(r.trace.Requests, load.Request{Name: q.method, Method: q.method, Path: q.path})
	}
	return i
}

// skipped says in brackets what was not sent, if anything was not.
func (t *Trace) skipped() string {
	var words []string
	for _, why := range slices.Sorted(maps.Keys(t.Skipped)) {
		words = append(words, fmt.Sprintf("%d %s", t.Skipped[why], why))
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// spread puts the events of one second of the log into it. The first that has
// any is the trace's beginning.
func (r *replayer) spread(events []load.Event, second time.Time) {
	if len(events) == 0 {
		return
	}
	if len(r.trace.Events) == 0 {
		r.trace.Began = second
	}
	r.trace.Busiest = max(r.trace.Busiest, len(events))
	began := second.Sub(r.trace.Began)
	places := make([]float64, len(events))
	for j := range places {
		places[j] = (float64(j) + 0.5) / float64(len(places))
		if r.Uniform {
			places[j] = r.rand.Float64()
		}
	}
	slices.Sort(places)
	for j, e := range events {
		e.At = time.Duration((float64(began) + places[j]*float64(time.Second)) / r.Speed)
		r.trace.Events = append(r.trace.Events, e)
	}
}

// PathOf is the path of a request's target, with what may not stand in a
// request line, or would be taken for a placeholder, percent-encoded; so is a
// percent sign that encodes nothing, over which servers stumble. It is empty
// for a target without one.
func PathOf(target string) string {
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		target = "/"
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			target = rest[i:]
		}
	}
	if !strings.HasPrefix(target, "/") {
		return ""
	}
	var b strings.Builder
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '{' || c == '}' || c == '%' && !encodes(target[i+1:]) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// encodes reports whether what follows a percent sign is a byte.
func encodes(s string) bool {
	if len(s) < 2 {
		return false
	}
	_, err := strconv.ParseUint(s[:2], 16, 8)
	return err == nil
}
