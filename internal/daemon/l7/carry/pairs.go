// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
)

// Pair is a file with a certificate and its key, which a listener or backend names.
type Pair struct {
	Path, Of     string
	Error        string // why it cannot be used
	Name         string // of its first certificate
	Begins, Ends time.Time
	Open         bool // every user may read its key
}

// RenewTime is how long before its end a certificate is to be renewed.
const RenewTime = 30 * 24 * time.Hour

// Days is a time in whole days, or in hours if it is shorter than two days.
func Days(d time.Duration) string {
	if d < 48*time.Hour {
		return fmt.Sprintf("%d hours", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Validity says what is wrong with the time for which the first certificate is valid; "": nothing. It is not valid now
// if invalid is true.
func (p *Pair) Validity(now time.Time) (text string, invalid bool) {
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	what := fmt.Sprintf("%s: the certificate %s", p.Of, p.Path)
	if p.Name != "" {
		what += " for " + p.Name
	}
	const renew = "renew it; the daemon then reads the new file"
	switch left := p.Ends.Sub(now); {
	case p.Error != "":
		return "", false
	case now.Before(p.Begins):
		return fmt.Sprintf("%s is not valid before %s: set the clock, or use another certificate until then", what, p.Begins.UTC().Format(time.DateTime+" UTC")), true
	case left <= 0:
		return fmt.Sprintf("%s expired on %s: %s", what, day(p.Ends), renew), true
	case left < RenewTime:
		return fmt.Sprintf("%s expires on %s, in %s: %s", what, day(p.Ends), Days(left), renew), false
	}
	return "", false
}

// Pairs are the files with a certificate and its key that listeners and backends name, each once.
func Pairs(c *l7.Config) (all []Pair) {
	add := func(path, of string) {
		if !slices.ContainsFunc(all, func(one Pair) bool { return one.Path == path }) {
			all = append(all, readPair(path, of))
		}
	}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil {
			for _, path := range t.Certificates {
				add(path, "listener "+c.Listeners[i].Name)
			}
		}
	}
	for i := range c.Backends {
		if t := c.Backends[i].TLS; t != nil && t.Client != "" {
			add(t.Client, "backend "+c.Backends[i].Name)
		}
	}
	return all
}

func readPair(path, of string) Pair {
	c := Pair{Path: path, Of: of}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	var text []byte
	if err == nil {
		c.Open = info.Mode().Perm()&0o004 != 0
		text, err = os.ReadFile(path)
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(text, text)
	}
	if err != nil {
		var failed *fs.PathError
		if errors.As(err, &failed) {
			err = failed.Err
		}
		c.Error = strings.TrimPrefix(err.Error(), "tls: ")
		return c
	}
	c.Name, c.Begins, c.Ends = pair.Leaf.Subject.CommonName, pair.Leaf.NotBefore, pair.Leaf.NotAfter
	if len(pair.Leaf.DNSNames) > 0 {
		c.Name = pair.Leaf.DNSNames[0]
	}
	return c
}
