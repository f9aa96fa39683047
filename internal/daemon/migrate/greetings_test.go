// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	checker "imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
)

// A server whose greeting refuses service is down, whatever else the greeting says.
func TestGreetings(t *testing.T) {
	const smtp = "virtual_server 10.0.0.1 25 {\nprotocol TCP\nreal_server 10.0.1.1 25 {\nSMTP_CHECK {\n}\n}\n}"
	of := func(service string) string {
		return "virtual=10.0.0.1:9\n\treal=10.0.1.1:9 masq\n\tservice=" + service + "\n"
	}
	for _, c := range []struct {
		text, greeting string
		up             bool
	}{
		{smtp, "220 mx1.example.org ESMTP\r\n", true},
		{smtp, "220-mx1.example.org\r\n220 ESMTP\r\n", true},
		{smtp, "554 mx1.example.org: no SMTP service for 10.220.3.4\r\n", false},
		{smtp, "421 4.3.2 too many connections (220), try again later\r\n", false},
		{smtp, "421-busy\r\n220 later\r\n", false},
		{of("smtp"), "220 mx1.example.org ESMTP\r\n", true},
		{of("smtp"), "554 mx1.example.org: no SMTP service for 10.220.3.4\r\n", false},
		{of("submission"), "421 4.3.2 too many connections (220), try again later\r\n", false},
		{of("ftp"), "220 ready\r\n", true},
		{of("ftp"), "421 220 users are connected\r\n", false},
		{of("pop"), "+OK ready\r\n", true},
		{of("pop"), "-ERR try again, not +OK\r\n", false},
		{of("imap"), "* OK ready\r\n", true},
		{of("imap"), "* PREAUTH ready\r\n", true},
		{of("imap"), "* BYE busy\r\n* OK\r\n", false},
		{of("nntp"), "201 news.example.org, no posting\r\n", true},
		{of("nntp"), "400 news.example.org: too many connections, at most 20\r\n", false},
	} {
		r := greeted(t, c.text, c.greeting)
		if r.OK != c.up || r.Inconclusive {
			t.Errorf("%s%q: %+v", c.text, c.greeting, r)
		}
	}
}

// greeted imports a file, and is the result of its check for a server with a greeting.
func greeted(t *testing.T, text, greeting string) checker.Result {
	t.Helper()
	imported, err := importOne(t, "x", []byte(text), Source{})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := config.Parse("x", imported.YAML())
	if err != nil {
		t.Fatal(err)
	}
	check, err := conf.Services[0].Servers[0].Checks[0].Spec.Checker()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return check.Check(ctx, checker.Target{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			_, _ = io.WriteString(there, greeting)
		}()
		return here, nil
	}})
}
