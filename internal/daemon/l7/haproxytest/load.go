// SPDX-License-Identifier: Apache-2.0

package haproxytest

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"time"
)

// Visitor is a kind of client.
type Visitor struct {
	Name string
	URL  string
	// Fresh: each request has a connection of its own, otherwise they share kept ones.
	Fresh bool
	HTTP2 bool // with TLS
	// Post sends a body that cannot be sent again: the client repeats no request, as browsers
	// and Go repeat a GET whose kept connection has just been closed.
	Post   bool
	Cookie bool // keeps cookies
}

// Request is one that was sent, with its outcome.
type Request struct {
	Visitor    string
	Begin, End time.Time
	Reply      string
	Err        error
}

// Outstanding is how many seconds' requests may be under way: a machine that is too busy for the rate
// would only be kept busy by more of them.
const Outstanding = 2

// Load sends requests at a constant rate, whatever becomes of those before.
type Load struct {
	stop   chan struct{}
	done   chan struct{}
	mu     sync.Mutex
	all    []Request
	unsent int
}

// Load starts one: each second request has a connection of its own, the others share kept ones.
func (h *Host) Load(url string, rate int) *Load {
	return h.LoadOf(rate, Visitor{Name: "new", URL: url, Fresh: true}, Visitor{Name: "kept", URL: url})
}

// LoadOf starts one of several kinds of clients, interleaved.
func (h *Host) LoadOf(rate int, visitors ...Visitor) *Load {
	l := &Load{stop: make(chan struct{}), done: make(chan struct{})}
	clients := make([]*http.Client, len(visitors))
	for i, v := range visitors {
		clients[i] = h.visitor(v)
	}
	go func() {
		defer close(l.done)
		var all sync.WaitGroup
		free := make(chan struct{}, Outstanding*rate)
		begin := time.Now()
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				all.Wait()
				for _, c := range clients {
					c.CloseIdleConnections()
				}
				return
			case <-time.After(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
			}
			select {
			case free <- struct{}{}:
			default:
				l.mu.Lock()
				l.unsent++
				l.mu.Unlock()
				continue
			}
			all.Go(func() {
				defer func() { <-free }()
				r := visitors[i%len(visitors)].send(clients[i%len(clients)])
				l.mu.Lock()
				l.all = append(l.all, r)
				l.mu.Unlock()
			})
		}
	}()
	return l
}

// visitor is the client of one kind.
func (h *Host) visitor(v Visitor) *http.Client {
	t := &http.Transport{
		DialContext: h.Dial, DisableKeepAlives: v.Fresh, MaxIdleConnsPerHost: 8,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: v.HTTP2,
	}
	c := &http.Client{Timeout: patience, Transport: t}
	if v.Cookie {
		c.Jar, _ = cookiejar.New(nil) // there is no error without options
	}
	return c
}

func (v Visitor) send(c *http.Client) Request {
	r := Request{Visitor: v.Name, Begin: time.Now()}
	q, err := http.NewRequest(http.MethodGet, v.URL, nil)
	if err == nil {
		if v.Post {
			q.Method, q.Body, q.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader("item=1")), int64(len("item=1"))
		}
		r.Reply, err = send(c, q)
	}
	r.End, r.Err = time.Now(), err
	return r
}

// Stop ends the load and returns all requests in the order in which they were sent.
func (l *Load) Stop() []Request {
	close(l.stop)
	<-l.done
	slices.SortFunc(l.all, func(a, b Request) int { return a.Begin.Compare(b.Begin) })
	return l.all
}

// Unsent is how many requests the rate would have had more, had so many not been under way.
func (l *Load) Unsent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsent
}

// Failed are those with an error.
func Failed(all []Request) []Request {
	return slices.DeleteFunc(slices.Clone(all), func(r Request) bool { return r.Err == nil })
}

// NotUnderWay says why requests that failed were not all under way at one moment; "": they were.
func NotUnderWay(failed []Request) string {
	if len(failed) == 0 {
		return ""
	}
	first, last := failed[0], failed[0] // that ended first, and that began last
	for _, r := range failed {
		if r.End.Before(first.End) {
			first = r
		}
		if r.Begin.After(last.Begin) {
			last = r
		}
	}
	if after := last.Begin.Sub(first.End); after > clientTime {
		return fmt.Sprintf("of %d requests that failed, one began %v after another one had failed: %v, and %v", len(failed), after, last.Err, first.Err)
	}
	return ""
}
