// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// purpose separates the key of the link from whatever else is derived from the shared key.
const purpose = "imbang pair link, Ed25519, version 1"

// errStranger refuses a certificate of another key.
var errStranger = errors.New("the peer has another key: the key files of the two directors differ")

// identity is what both directors prove that they have.
type identity struct {
	certificate tls.Certificate
	public      ed25519.PublicKey
}

func newIdentity(key []byte) (*identity, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("key of the pair: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "imbang"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // no clock is asked
	}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("certificate of the pair: %w", err)
	}
	return &identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, public}, nil
}

// verify accepts a peer that has proved, in the handshake, to have the private key.
func (i *identity) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) != 1 {
		return errStranger
	}
	if public, is := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !is || !i.public.Equal(public) {
		return errStranger
	}
	return nil
}

func (i *identity) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, VerifyConnection: i.verify,
		SessionTicketsDisabled: true, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // there is no authority: verify compares the key itself
	}
}
