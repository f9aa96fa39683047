// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"strconv"
	"time"
)

// httperf is an open loop whose connections carry a number of requests. Its
// descriptors end at FD_SETSIZE.
var httperfAble = able{
	open: true, poisson: true, number: true, time: true, some: true,
	methods: []string{"GET", "HEAD", "DELETE", "OPTIONS"},
}

func httperfCommand(j *job, _ string) ([]string, error) {
	number := j.Connections
	if number == 0 {
		number = int(j.Rate * j.Duration.Seconds())
	}
	rate := j.Rate / float64(j.perConn) // of connections
	args := []string{
		"--hog", "--server=" + j.Target.Addr().Unmap().String(), "--port=" + strconv.Itoa(int(j.Target.Port())),
		"--uri=" + j.request.Path, "--num-conns=" + strconv.Itoa(max(1, number/j.perConn)),
		"--num-calls=" + strconv.Itoa(j.perConn), "--timeout=" + plain(j.Timeout.Seconds()),
	}
	if j.Arrivals == 0 {
		args = append(args, "--rate="+plain(rate))
	} else {
		args = append(args, "--period=e"+plain(1/rate))
	}
	if j.request.Method != "GET" {
		args = append(args, "--method="+j.request.Method)
	}
	// Of itself httperf leaves the port out of the Host header.
	host := j.Host
	if host == "" {
		host = j.Target.String()
	}
	return append(args, "--server-name="+host), nil
}

// plain is a number without an exponent, which httperf does not take.
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// ab is a closed loop on one thread.
var abAble = able{
	closed: true, number: true, time: true, seconds: true, ipv6: true, sources: true, body: true,
	methods: []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"},
}

// abMost bounds the requests of a run by time: ab keeps 40 bytes for each one
// it could send.
const abMost = 5_000_000

func abCommand(j *job, dir string) ([]string, error) {
	// -l: replies may differ in length. -r: a reset is counted, not the end.
	args := []string{"-q", "-l", "-r", "-c", strconv.Itoa(j.Concurrency), "-s", seconds(j.Timeout)}
	if j.Duration > 0 {
		args = append(args, "-t", seconds(j.Duration), "-n", strconv.Itoa(abMost)) // in this order
	} else {
		args = append(args, "-n", strconv.Itoa(j.Connections))
	}
	if j.perConn != 1 {
		args = append(args, "-k")
	}
	if j.Host != "" {
		args = append(args, "-H", "Host: "+j.Host)
	}
	if s := j.Clients[0].Sources; len(s) > 0 {
		args = append(args, "-B", s[0].String())
	}
	args, err := abRequest(args, j, dir)
	return append(args, j.url()), err
}

// abRequest adds what of the request is not its URL.
func abRequest(args []string, j *job, dir string) ([]string, error) {
	r := &j.request
	switch r.Method {
	case "GET":
		return args, nil
	case "HEAD":
		return append(args, "-i"), nil
	case "POST", "PUT":
		path, err := write(dir, "body", r.Body)
		option := map[string]string{"POST": "-p", "PUT": "-u"}[r.Method]
		args = append(args, option, path)
		if r.ContentType != "" {
			args = append(args, "-T", r.ContentType)
		}
		return args, err
	}
	if r.Body != "" {
		return nil, fmt.Errorf("a body of %s requests cannot be had", r.Method)
	}
	return append(args, "-m", r.Method), nil
}

// siege is a closed loop with a thread for each user.
var siegeAble = able{
	closed: true, number: true, time: true, seconds: true, ipv6: true, body: true,
	methods: []string{"GET", "POST"},
}

// siegeSettings keep siege from reading its user's, from writing logs and
// from limits of its own.
const siegeSettings = `verbose = false
color = off
quiet = false
show-logfile = false
logging = false
json_output = false
protocol = HTTP/1.1
cache = false
cookies = false
parser = false
limit = %d
connection = %s
timeout = %s
failures = 1000000000
benchmark = true
`

func siegeCommand(j *job, dir string) ([]string, error) {
	connection := "close"
	if j.perConn != 1 {
		connection = "keep-alive"
	}
	rc, err := write(dir, "siegerc", fmt.Sprintf(siegeSettings, j.Concurrency, connection, seconds(j.Timeout)))
	if err != nil {
		return nil, err
	}
	args := []string{"-R", rc, "-c", strconv.Itoa(j.Concurrency)}
	switch {
	case j.Duration > 0:
		args = append(args, "-t", seconds(j.Duration)+"S")
	case j.Connections%j.Concurrency != 0:
		return nil, fmt.Errorf("cannot share %d requests among %d users: give a multiple", j.Connections, j.Concurrency)
	default:
		args = append(args, "-r", strconv.Itoa(j.Connections/j.Concurrency))
	}
	if j.Host != "" {
		args = append(args, "-H", "Host: "+j.Host)
	}
	if j.request.ContentType != "" {
		args = append(args, "-T", j.request.ContentType)
	}
	url := j.url()
	if j.request.Method == "POST" {
		url += " POST " + j.request.Body
	}
	return append(args, url), nil
}

// wrk is a closed loop by time, with a script for all but GET.
var wrkAble = able{
	closed: true, time: true, seconds: true, ipv6: true, body: true,
	methods: []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"},
}

func wrkCommand(j *job, dir string) ([]string, error) {
	args := []string{
		"-t", "1", "-c", strconv.Itoa(j.Concurrency), "-d", seconds(j.Duration) + "s",
		"--timeout", seconds(j.Timeout) + "s", "--latency",
	}
	if j.perConn == 1 {
		args = append(args, "-H", "Connection: close")
	}
	if j.Host != "" {
		args = append(args, "-H", "Host: "+j.Host)
	}
	if r := &j.request; r.Method != "GET" {
		script, err := write(dir, "request.lua", wrkScript(r.Method, r.Body, r.ContentType))
		if err != nil {
			return nil, err
		}
		args = append(args, "-s", script)
	}
	return append(args, j.url()), nil
}

func wrkScript(method, body, contentType string) string {
	text := "wrk.method = " + lua(method) + "\n"
	if body != "" {
		text += "wrk.body = " + lua(body) + "\n"
	}
	if contentType != "" {
		text += `wrk.headers["Content-Type"] = ` + lua(contentType) + "\n"
	}
	return text
}

// lua is a string of Lua 5.1, byte by byte where it is not plain.
func lua(s string) string {
	b := []byte{'"'}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b = fmt.Appendf(b, "\\%03d", c)
		} else {
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func (j *job) url() string {
	if j.request.TLS {
		host := j.Target.Addr().Unmap().String()
		if j.Target.Addr().Unmap().Is6() {
			host = "[" + host + "]"
		}
		return "https://" + host + j.request.Path
	}
	return "http://" + j.Target.String() + j.request.Path
}
