// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"imbang/internal/daemon/l7"
)

// kind of a file, in ascending order of what it has to be if it is named as several.
type kind uint8

const (
	page        kind = iota + 1 // sent to clients
	authorities                 // certificates
	pair                        // certificate, chain and key
)

// sources are the files that a configuration names.
func sources(c *l7.Config) map[string]kind {
	all := map[string]kind{}
	for _, path := range c.Pages() {
		all[path] = page
	}
	paths, key := c.Files()
	for _, path := range paths {
		all[path] = authorities
		if key[path] {
			all[path] = pair
		}
	}
	return all
}

// validate says why a text cannot be used.
func (k kind) validate(text []byte, mostOfPage int) error {
	switch k {
	case page:
		if len(text) > mostOfPage {
			return fmt.Errorf("has %d bytes: HAProxy allows %d", len(text), mostOfPage)
		}
		return nil
	case authorities:
		if err := validateAuthorities(text); err != nil {
			return fmt.Errorf("%w: want certificates in PEM", err)
		}
		return nil
	}
	_, err := tls.X509KeyPair(text, text)
	if err == nil {
		_, err = blocks(text)
	}
	if err != nil {
		return fmt.Errorf("%w: want certificate, chain and key in PEM", err)
	}
	return nil
}

// blocks are those of a PEM text, which is whole. pem.Decode ignores a block without an end.
func blocks(text []byte) (all []*pem.Block, err error) {
	begins := bytes.Count(text, []byte("-----BEGIN "))
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, block)
	}
	if len(all) != begins {
		return nil, errors.New("is not whole")
	}
	return all, nil
}

func validateAuthorities(text []byte) error {
	all, err := blocks(text)
	if err != nil {
		return err
	}
	found := false
	for _, block := range all {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return errors.New("has no certificate")
	}
	return nil
}

// endOf is when a certificate expires; zero: there is none.
func endOf(text []byte) time.Time {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// nobody is an authority whose key is thrown away, so that no certificate is valid by it.
func nobody() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "no certificate is valid"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
