// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
	"strings"
)

// Popularity is what requests ask for, and where, where there is a choice.
// It is made by Zipf's law, 1 being chosen most often; with an exponent of 0
// all are alike.
type Popularity struct {
	DestinationZipf float64 // the exponent, of virtual addresses
	URLs            int     // how many {url} stands for; 0: there is none
	URLZipf         float64 // the exponent, of those
}

// NginxURLs begins the paths that nginx answers with its page, as it does /.
const NginxURLs = "/url/"

const urlMark = "{url}"

func (c *checker) popularity(d *loadDoc, s *Study) {
	s.Load.Popularity = Popularity{d.Zipf, d.URLs, d.URLZipf}
	c.exponent("load.destination_zipf", d.Zipf)
	c.exponent("load.url_zipf", d.URLZipf)
	if s.VirtualAddresses < 2 && c.has("load.destination_zipf") {
		c.refuse("load.destination_zipf", "there is one address to choose: give cluster.virtual_addresses, such as 100, or remove it")
	}
	if c.has("load.urls") {
		c.between("load.urls", d.URLs, 1, MaxURLs)
	} else if c.has("load.url_zipf") {
		c.refuse("load.url_zipf", "there are no URLs to choose: give load.urls, such as 1000, or remove it")
	}
	c.urls(s)
	c.ownTool(s)
}

func (c *checker) exponent(path string, x float64) {
	if c.has(path) && !(x >= 0 && x <= 10) {
		c.refuse(path, "%g is out of range: want an exponent of Zipf's law from 0, all alike, to 10", x)
	}
}

// urls requires that {url} stands where there are URLs, nowhere else, and for
// something that every server has.
func (c *checker) urls(s *Study) {
	used := false
	for i, call := range s.Load.Calls {
		at := fmt.Sprintf("load.calls[%d]", i)
		inPath := strings.Contains(call.Path, urlMark)
		switch {
		case !inPath && !strings.Contains(call.Body, urlMark):
			continue
		case !c.has("load.urls"):
			c.refuse(at, "%s stands for one of load.urls: say how many there are, such as urls: 1000", urlMark)
		case inPath:
			c.answered(at+".path", call.Path, s)
		}
		used = true
	}
	if c.has("load.urls") && !used {
		c.refuse("load.urls", "no call asks for them: write %s into the path of one of load.calls, such as %s%s, or remove it", urlMark, NginxURLs, urlMark)
	}
}

// answered refuses a path that a real server answers with an error page.
func (c *checker) answered(at, path string, s *Study) {
	for i, server := range s.Servers {
		switch {
		case server.Kind == Nginx && !strings.HasPrefix(path, NginxURLs):
			c.refuse(at, "%q: s%d is nginx, which has %s below %s: write %s%s", path, i+1, urlMark, NginxURLs, NginxURLs, urlMark)
		case server.Kind == API:
			c.refuse(at, "%q: s%d is an application of fixed paths: write %s into the body, or use servers of kind: model", path, i+1, urlMark)
		}
	}
}

// ownTool refuses tools that send one request to one address.
func (c *checker) ownTool(s *Study) {
	i := slices.IndexFunc(s.Load.Tools, func(t string) bool { return t != BuiltIn })
	if i < 0 {
		return
	}
	at, tool := fmt.Sprintf("load.tools[%d]", i), s.Load.Tools[i]
	switch {
	case s.VirtualAddresses > 1:
		c.refuse(at, "%s sends to one address: remove it, or cluster.virtual_addresses", tool)
	case s.Load.URLs > 0:
		c.refuse(at, "%s sends the same request again and again: remove it, or load.urls", tool)
	}
}

// Choices says among what requests choose, a line each.
func (s *Study) Choices() (lines []string) {
	add := func(n int, what string, exponent float64) {
		switch {
		case n < 2:
		case exponent == 0:
			lines = append(lines, fmt.Sprintf("%d %s, all as popular as each other", n, what))
		default:
			lines = append(lines, fmt.Sprintf("%d %s, popular by Zipf's law with the exponent %g", n, what, exponent))
		}
	}
	add(s.VirtualAddresses, "virtual addresses", s.Load.DestinationZipf)
	add(s.Load.URLs, "URLs", s.Load.URLZipf)
	return lines
}
