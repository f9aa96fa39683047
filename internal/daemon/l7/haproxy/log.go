// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"encoding/json"
	"strconv"
	"strings"

	"imbang/internal/daemon/l7"
)

// Of a line in an access log. Values of clients are escaped, so that a line stays one and its
// fields stay apart: in combined by +E (", \ and ]), in JSON by json.
const (
	asCombined = `%f %ci - - [%trl] "%{+E}[capture.req.method] %{+E}[capture.req.uri] %HV" %ST %B ` +
		`"%{+E}[capture.req.hdr(0)]" "%{+E}[capture.req.hdr(1)]"`
	asJSON = `%f {"time":%Ts.%ms,"listener":"%f","client":"%ci","client_port":%cp,` +
		`"method":"%[capture.req.method,json(utf8s)]","host":"%[capture.req.hdr(2),json(utf8s)]",` +
		`"uri":"%[capture.req.uri,json(utf8s)]","protocol":"%HV","status":%ST,"bytes":%B,` +
		`"duration_ms":%Ta,"queue_ms":%Tw,"connect_ms":%Tc,"response_ms":%Tr,` +
		`"backend":"%b","server":"%s","retries":"%rc","end":"%ts",` +
		`"referer":"%[capture.req.hdr(0),json(utf8s)]","agent":"%[capture.req.hdr(1),json(utf8s)]"}`
)

const longestLine = "16384" // bytes; HAProxy's default is 1024

// LogPrefix begins each line of an access log, and the listener's name and a space follow. Lines
// with another level are HAProxy's own, such as that the listener stops: they go the same way and
// are not to be written to the log.
const LogPrefix = "<6>"

// LogsFile is the rendered file that says which listener's log is which file: an object in JSON.
const LogsFile = "logs.json"

// logs is that file.
func (r *render) logs() string {
	files := map[string]string{}
	for i := range r.Listeners {
		if l := &r.Listeners[i]; l.Log != nil {
			files[l.Name] = l.Log.File
		}
	}
	text, _ := json.Marshal(files) // of strings
	return string(text)
}

// log is a listener's access log.
func (r *render) log(l *l7.Listener) {
	if l.Log == nil {
		return
	}
	r.line("log stdout len", longestLine, "format short local0 info")
	r.line("capture request header Referer len 1024")
	r.line("capture request header User-Agent len 1024")
	switch l.Log.Format {
	case "", "combined":
		r.combined(l)
	case "json":
		r.line("capture request header Host len 256")
		r.line("log-format", word(asJSON))
	default:
		r.failf("log.format %q: use combined or json", l.Log.Format)
	}
}

// controls is a regular expression of control characters, with those of C1.
const controls = `[\x01-\x1f\x7f]|\xc2[\x80-\x9f]`

// combined has ? for control characters, since terminals obey them. HAProxy lets them through in values of
// headers, and those of C1 in targets of HTTP/2 and HTTP/3. In HTTP/1 it refuses all bytes above 0x7f in these, unless a
// raw line tells it not to.
func (r *render) combined(l *l7.Listener) {
	line := asCombined
	if l.HTTP2 || l.HTTP3 || len(l.Raw) > 0 {
		line = strings.Replace(line, "capture.req.uri", `capture.req.uri,regsub("`+controls+`",?,g)`, 1)
	}
	r.line("log-format", word(line))
	for i, header := range []string{"Referer", "User-Agent"} { // in the order of log
		id := strconv.Itoa(i)
		r.line("http-request capture", word("req.fhdr("+header+`),regsub("`+controls+`",?,g)`), "id", id,
			"if", isUnusual, "{ capture.req.hdr("+id+") -m reg", word(controls), "}")
	}
}
