// SPDX-License-Identifier: Apache-2.0

package load

import (
	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// tally is what one client counted. Only all, requests and carried include the
// warm-up.
type tally struct {
	all        int // connects made, the warm-up's too
	requests   int // sent or tried, the warm-up's too
	scheduled  int
	issued     int
	opened     int // connections
	repeated   int
	replies    int
	status     [5]int
	interim    int
	loss       Loss
	unfinished int
	bytes      Bytes
	carried    carried
	server     []int // by index of names
	slots      slots
	unnamed    int
	lastIssue  int64 // ns from the run's beginning
	lastReply  int64
	named      []named // by name of the request, if they have any

	connect, firstByte, response, service, lateness *hdrhistogram.Histogram
}

func newTally() *tally {
	return &tally{
		connect: newHistogram(), firstByte: newHistogram(), response: newHistogram(),
		service: newHistogram(), lateness: newHistogram(),
	}
}

// merge adds a client's tally; names are merged by the caller.
func (t *tally) merge(o *tally) {
	t.all += o.all
	t.requests += o.requests
	t.opened += o.opened
	t.repeated += o.repeated
	for i := range o.named {
		t.named[i].merge(&o.named[i])
	}
	t.scheduled += o.scheduled
	t.issued += o.issued
	t.replies += o.replies
	for i, n := range o.status {
		t.status[i] += n
	}
	t.interim += o.interim
	t.loss.add(o.loss)
	t.unfinished += o.unfinished
	t.bytes.add(o.bytes)
	t.carried.merge(o.carried)
	t.unnamed += o.unnamed
	t.lastIssue = max(t.lastIssue, o.lastIssue)
	t.lastReply = max(t.lastReply, o.lastReply)
	t.connect.Merge(o.connect)
	t.firstByte.Merge(o.firstByte)
	t.response.Merge(o.response)
	t.service.Merge(o.service)
	t.lateness.Merge(o.lateness)
}

// schedule counts an arrival that is due.
func (t *tally) schedule(a *arrival, name int32) {
	if !a.counted {
		return
	}
	t.scheduled++
	if t.named != nil {
		t.named[name].scheduled++
	}
}

// unfinish counts an arrival that the end of the run has overtaken.
func (t *tally) unfinish(name int32) {
	t.unfinished++
	if t.named != nil {
		t.named[name].unfinished++
	}
}

// reply counts a complete reply that ended at now.
func (t *tally) reply(c *conn, now int64) {
	t.replies++
	t.status[c.reply.status/100-1]++
	t.lastReply = now
	if t.named != nil {
		n := &t.named[c.form.name]
		n.replies++
		n.status[c.reply.status/100-1]++
		record(n.response, now-c.at)
	}
	record(t.firstByte, c.first-c.at)
	record(t.response, now-c.at)
	record(t.service, now-c.started)
	if c.reply.server == noServer {
		t.unnamed++
		return
	}
	for int(c.reply.server) >= len(t.server) {
		t.server = append(t.server, 0)
	}
	t.server[c.reply.server]++
	t.slots.count(c.reply.server, now)
}

// traffic counts the bytes of a request and its reply, whatever became of it.
func (t *tally) traffic(c *conn) {
	t.interim += int(c.reply.interim)
	t.bytes.Sent += int64(c.sent)
	t.bytes.Header += c.reply.header
	t.bytes.Content += c.reply.content
	t.bytes.Framing += c.reply.trailing
}

// local counts a connection that this machine could not open.
func (l *Loss) local(e unix.Errno) {
	switch e {
	case unix.EMFILE, unix.ENFILE:
		l.Client.Descriptors++
	case unix.EADDRNOTAVAIL, unix.EADDRINUSE:
		l.Client.Addresses++
	default: // ENOBUFS, ENOMEM, ENETUNREACH, EPERM (a local filter), ...
		l.Client.Other++
		l.Client.lastOther = e
	}
}

// remote counts a connection that ended with a socket error. wasOpen: the
// handshake had been completed. ECONNREFUSED is a RST to the SYN or an ICMP
// port unreachable (RFC 1122, 4.2.3.9).
func (l *Loss) remote(e unix.Errno, wasOpen bool) {
	switch e {
	case unix.ECONNREFUSED:
		l.Refused++
	case unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED:
		l.Reset++
	case unix.ETIMEDOUT:
		l.timeout(wasOpen)
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET, unix.ENOPROTOOPT, unix.EACCES:
		// What ICMP destination unreachable becomes, by its code.
		l.Unreachable++
	default:
		l.local(e)
	}
}

// timeout counts a connection nobody finished in time.
func (l *Loss) timeout(wasOpen bool) {
	l.Timeout++
	if !wasOpen {
		l.TimeoutConnecting++
	}
}
