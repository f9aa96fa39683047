// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os/exec"
	"strings"
	"testing"

	"imbang/internal/daemon/l7/haproxytest"
)

// The programs that the studies loaded clusters with, and what users have.
func TestLayer7Clients(t *testing.T) {
	w := newProxied(t, webConfig("", webServers...))
	plain, secure := "http://"+webPlain+"/", "https://"+webTLS+"/"
	for _, c := range []struct {
		name, command string
		said          []string // all of it
	}{
		{"curl", "curl -sS -o /dev/null -w %{http_version}/%{response_code} " + plain, []string{"1.1/200"}},
		{"curl with HTTP/2", "curl -sSk -o /dev/null -w %{http_version}/%{response_code} " + secure, []string{"2/200"}},
		{"curl with HTTP/1 and TLS", "curl -sSk --http1.1 -o /dev/null -w %{http_version}/%{response_code} " + secure, []string{"1.1/200"}},
		{"ab", "ab -q -n 200 -c 10 " + plain, []string{"Complete requests:      200", "Failed requests:        0"}},
		{"ab with kept connections", "ab -q -k -n 200 -c 10 " + plain, []string{"Complete requests:      200", "Failed requests:        0"}},
		{"ab with TLS", "ab -q -n 50 -c 5 " + secure, []string{"Complete requests:      50", "Failed requests:        0"}},
		{"siege", "siege --no-parser -b -c 5 -r 20 " + plain, []string{`"transactions":`, "100,", `"failed_transactions":`}},
		{"wrk", "wrk -t1 -c10 -d1s " + plain, []string{"requests in"}},
		{"httperf", "httperf --hog --server 127.0.0.1 --port 8080 --uri / --num-conns 100 --rate 200", []string{"replies 100", "Errors: total 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			words := strings.Fields(c.command)
			path, err := exec.LookPath(words[0])
			if err != nil {
				t.Skipf("needs %s: install it", words[0])
			}
			cmd := exec.Command(path, words[1:]...)
			cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			w.host.Start(cmd)
			err = cmd.Wait()
			said := out.String()
			if err != nil || strings.Contains(said, "Non-2xx") {
				t.Fatalf("%v: %s", err, said)
			}
			for _, want := range c.said {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in\n%s", want, said)
				}
			}
		})
	}
	client := w.host.Client(false)
	if _, err := haproxytest.Get(client, plain); err != nil {
		t.Error(err)
	}
}
