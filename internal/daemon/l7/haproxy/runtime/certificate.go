// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
)

// SetCertificate replaces a certificate that the configuration names by its file, with chain
// and key in PEM. Connections from then on get the new one. After an error the old one is in
// use.
func (c *Client) SetCertificate(ctx context.Context, file, pem string) error {
	of := "certificate " + file
	// 2.6 accepts a certificate without a key in the transaction, and takes the old key.
	if _, err := tls.X509KeyPair([]byte(pem), []byte(pem)); err != nil {
		return fmt.Errorf("%s: the old one stays in use: %w", of, err)
	}
	set := Command{About: of, Line: "set ssl cert " + escape(file), Payload: payload(pem), done: []string{"Transaction created", "Transaction updated"}}
	if err := c.Run(ctx, set); err != nil {
		return c.abort(ctx, of, file, err)
	}
	reply, err := c.ask(ctx, "commit ssl cert "+escape(file)+"\n")
	switch {
	case err != nil:
		err = fmt.Errorf("%s: commit: %w", of, err)
	case !strings.Contains(reply, "Success!"):
		err = &Refused{Command{About: of, Line: "commit ssl cert " + escape(file)}, oneLine(reply)}
	default:
		return nil
	}
	return c.abort(ctx, of, file, err)
}

// abort ends the transaction that an error leaves: it would keep the next one from beginning.
func (c *Client) abort(ctx context.Context, of, file string, err error) error {
	undo := Command{About: of, Line: "abort ssl cert " + escape(file), done: []string{"Transaction aborted", "No ongoing transaction"}}
	return errors.Join(err, c.Run(context.WithoutCancel(ctx), undo))
}

// payload is PEM without empty lines, which would end it.
func payload(pem string) string {
	var b strings.Builder
	for line := range strings.Lines(pem) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
