// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"encoding/json"

	"imbang/internal/daemon/l7"
)

// Of a line in an access log. Values of clients are escaped, so that a line stays one and its
// fields stay apart: in combined by +E (", \ and ]), in JSON by json. HAProxy lets control characters
// through in values of headers (see controls), and those of C1 in targets: combined has ? in their
// place, since terminals obey them.
const (
	asCombined = `%f %ci - - [%trl] "%{+E}[capture.req.method] %{+E}[capture.req.uri,regsub("\xc2[\x80-\x9f]",?,g)] %HV" %ST %B ` +
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
		r.line("log-format", word(asCombined))
	case "json":
		r.line("capture request header Host len 256")
		r.line("log-format", word(asJSON))
	default:
		r.failf("log.format %q: use combined or json", l.Log.Format)
	}
}
