// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// leastKey is the shortest key [bytes].
const leastKey = 16

// CheckKey says what is wrong with the key file.
func (c *Config) CheckKey() error {
	_, err := c.key()
	return err
}

// KeyDigest identifies a key without showing it.
type KeyDigest [sha256.Size]byte

// KeyDigest is that of the key that the file has now.
func (c *Config) KeyDigest() (KeyDigest, error) {
	key, err := c.key()
	if err != nil {
		return KeyDigest{}, err
	}
	return sha256.Sum256(key), nil
}

// key reads the group's key.
func (c *Config) key() ([]byte, error) { return ReadKey(c.KeyFile) }

// ReadKey reads the key that directors share.
func ReadKey(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("replication: key file: missing: make one with: openssl rand -hex 32 >FILE; chmod 600 FILE")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("replication: key file: %w", err)
	}
	if err := suitable(path, info, os.Geteuid()); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("replication: key file: %w", err)
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) < leastKey {
		return nil, fmt.Errorf("replication: key file %s: want at least %d hexadecimal digits in one line", path, 2*leastKey)
	}
	return key, nil
}

// suitable refuses what is no file, and a file that users other than root and the process's
// own can read or replace.
func suitable(path string, info fs.FileInfo, self int) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("replication: key file: %s is a directory: want a file", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("replication: key file: %s is not a regular file", path)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != self {
		return fmt.Errorf("replication: key file %s belongs to the user with number %d, who can read and change it: chown root %s", path, owner, path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("replication: key file %s can be read by others: chmod 600 %s", path, path)
	}
	return nil
}
