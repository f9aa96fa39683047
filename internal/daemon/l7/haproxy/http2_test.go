// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// open2 begins a connection of HTTP/2 and a request in it with these fields, which Go's client would not send all.
func (p *place) open2(t *testing.T, fields [][2]string, ends bool) (net.Conn, *http2.Framer) {
	t.Helper()
	c, err := p.dial("", at)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range fields {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: ends, BlockFragment: block.Bytes()})
	return c, f
}

// http2 sends such a request. It returns the status, or "" if there is none.
func (p *place) http2(t *testing.T, fields [][2]string) (status string) {
	t.Helper()
	c, f := p.open2(t, fields, true)
	defer c.Close()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return status
		}
		if m, is := frame.(*http2.MetaHeadersFrame); is {
			status = m.PseudoValue("status")
		}
		if h := frame.Header(); h.StreamID == 1 && (h.Type == http2.FrameRSTStream || h.Flags.Has(http2.FlagDataEndStream)) {
			return status
		}
	}
}
