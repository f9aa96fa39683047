// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// listenTLS is where HTTPS is accepted.
func (s Setup) listenTLS() netip.AddrPort { return netip.AddrPortFrom(s.listen().Addr(), 443) }

// certificate is the file of the certificate and its key, which is the same for all engines of a run.
func (s Setup) certificate() string { return filepath.Join(s.Dir, "lab.pem") }

// writeCertificate makes it, unless it is there: ECDSA by the curve P-256, which is what most
// certificate authorities issue by default.
func (s Setup) writeCertificate() error {
	if !s.TLS {
		return nil
	}
	if _, err := os.Stat(s.certificate()); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab.example"}, DNSNames: []string{"lab.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(s.certificate(), text, 0o600); err != nil {
		return fmt.Errorf("certificate of the run: %w", err)
	}
	return nil
}
