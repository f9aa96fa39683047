// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"
)

// TLS connects and completes a handshake.
type TLS struct {
	ClientTLS `yaml:",inline"`
	Days      int `yaml:"days" jsonschema_description:"days for which the server's certificate must at least be valid; default 0: it is not looked at"`
}

// Problems implements Spec.
func (c *TLS) Problems() []Problem {
	list := c.problems("")
	if c.Days < 0 || c.Days > 3650 {
		list = append(list, Problem{"days", fmt.Sprintf("%d is out of range: want 0 to 3650", c.Days)})
	}
	return list
}

type tlsChecker struct {
	config *tls.Config
	days   int
}

// Checker implements Spec.
func (c *TLS) Checker() (Checker, error) {
	config, err := c.config()
	return tlsChecker{config, c.Days}, err
}

// Check implements Checker.
func (c tlsChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	conn, err := t.dial(ctx)
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	defer hangUp(conn)
	secured, r := handshake(ctx, conn, c.config)
	if !r.OK {
		return r
	}
	state := secured.ConnectionState()
	left := time.Until(state.PeerCertificates[0].NotAfter)
	if days := int(left.Hours() / 24); c.days > 0 && days < c.days {
		return failed("the certificate is valid for %d days, want %d", days, c.days)
	}
	return passed("%s in %s", tls.VersionName(state.Version), since(start))
}
