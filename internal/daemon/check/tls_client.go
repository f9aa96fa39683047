// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"imbang/internal/readfile"
)

// ClientTLS is how checks speak TLS. Certificates are not verified unless asked, as
// keepalived does: real servers often have the service's name, or none.
type ClientTLS struct {
	ServerName string `yaml:"server_name" jsonschema_description:"name in the handshake (SNI), and the one that is verified"`
	Verify     bool   `yaml:"verify" jsonschema_description:"verify the server's certificate; default false, which also allows RSA key exchange"`
	CA         string `yaml:"ca" jsonschema_description:"file of the certificate authorities (PEM) to verify with; default the system's"`
	Cert       string `yaml:"cert" jsonschema_description:"file of the client certificate (PEM)"`
	Key        string `yaml:"key" jsonschema_description:"file of its key (PEM)"`
}

func (c *ClientTLS) problems(at string) (list []Problem) {
	switch {
	case c == nil:
	case (c.Cert == "") != (c.Key == ""):
		list = append(list, Problem{at + "cert", "a client certificate requires both cert and key"})
	case c.CA != "" && !c.Verify:
		list = append(list, Problem{at + "ca", "is used only to verify: write verify: true, or remove it"})
	case c.Verify && c.ServerName == "":
		list = append(list, Problem{at + "server_name", "missing: verify requires the name that the certificate has"})
	}
	return list
}

// mostOfFile bounds the files that checks read [bytes]: a bundle of authorities has some
// hundred KiB.
const mostOfFile = 4 << 20

// config reads the files. It is nil without TLS.
func (c *ClientTLS) config() (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	t := &tls.Config{ServerName: c.ServerName, InsecureSkipVerify: !c.Verify, MinVersion: tls.VersionTLS12}
	if !c.Verify {
		for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
			if !strings.Contains(s.Name, "RC4") && !strings.Contains(s.Name, "3DES") { // as OpenSSL
				t.CipherSuites = append(t.CipherSuites, s.ID)
			}
		}
	}
	if c.CA != "" {
		pem, _, err := readfile.Regular(c.CA, mostOfFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities: %s has no certificate in PEM", c.CA)
		}
	}
	if c.Cert != "" {
		cert, _, err := readfile.Regular(c.Cert, mostOfFile)
		key, _, err2 := readfile.Regular(c.Key, mostOfFile)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// handshake begins TLS on a connection. The result is a failure, or only OK.
func handshake(ctx context.Context, conn net.Conn, config *tls.Config) (*tls.Conn, Result) {
	secured := tls.Client(conn, config)
	err := secured.HandshakeContext(ctx)
	if err == nil {
		return secured, Result{OK: true}
	}
	why := reason(ctx, err)
	// Go also parses a certificate that is not verified, and refuses more than OpenSSL.
	if config.InsecureSkipVerify && strings.HasPrefix(err.Error(), "tls: failed to parse certificate") {
		why = cause{why.text + ": replace the certificate, or use a script", true}
	}
	return nil, failed("TLS handshake: %s", why)
}
