// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/readfile"
	"imbang/internal/testenv"
)

// write writes a configuration for a test.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "imbang.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Errors quote nothing of files that are no configurations, nor below secret keys.
func TestErrorsKeepSecrets(t *testing.T) {
	const checks = "checks:\n  web:\n    "
	for name, text := range map[string]string{
		"shadow":             "root:$y$j9T$SECRETSECRET:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
		"shadow, twice":      "root:$y$j9T$SECRETSECRET:19000:0:99999:7:::\nroot:$y$j9T$SECRETSECRET:19000:0:99999:7:::\n",
		"token":              "SECRETTOKEN\n",
		"private key":        "-----BEGIN PRIVATE KEY-----\nSECRETKEYSECRET\n-----END PRIVATE KEY-----\n",
		"environment":        "PASSWORD=SECRET\nUSER=x\n",
		"headers as list":    checks + "http:\n      headers: [Authorization, SECRET]\n",
		"headers as text":    checks + "http:\n      headers: \"Authorization: Bearer SECRET\"\n",
		"header as list":     checks + "http:\n      headers: {Authorization: [SECRET]}\n",
		"header's name":      checks + "http:\n      headers: {\"Authorization Bearer SECRET\": x}\n",
		"raw as text":        "proxy: {raw: SECRET}\n",
		"raw line":           "proxy: {raw: [\"SECRET 1\", \"stats socket SECRET\"]}\nlisteners: [{name: a, raw: [\"'SECRET\"]}]\n",
		"header of requests": "listeners: [{name: a, headers: [{name: Authorization, value: \"SECRET\\n\"}]}]\n",
		"community":          checks + "udp: {send_hex: SECRET}\n",
		"end of a long text": checks + "http:\n      requests: [{path: \"" + strings.Repeat("x", 40) + "SECRET\"}]\n",
	} {
		_, err := Load(write(t, text))
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is no regular file does not block the reader.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, link, good := filepath.Join(dir, "pipe"), filepath.Join(dir, "zero"), filepath.Join(dir, "good.yaml")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/zero", link), os.WriteFile(good, []byte("include: [pipe]\nservices: []\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, good} {
		done := make(chan error, 1)
		go func() {
			_, err := Load(path)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, readfile.ErrNotRegular) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s is still being read", path)
		}
	}
	_, err := Load(write(t, strings.Repeat("# comment\n", MaxFile/10+1)))
	if err == nil || !strings.HasSuffix(err.Error(), "larger than 4096 KiB: split it, and include the parts") {
		t.Errorf("%v", err)
	}
}

// farm is a configuration of so many servers, each as written.
func farm(services, servers int, server string) string {
	b := &strings.Builder{}
	b.WriteString("checks: {web: {tcp: {}}}\nservices:\n")
	for i := range services {
		fmt.Fprintf(b, "  - name: service-%d\n    virtual: 10.20.%d.%d:80\n    checks: [web]\n    servers:\n", i, i/250, i%250+1)
		for j := range servers {
			fmt.Fprintf(b, server, i, j, i, j+1)
		}
	}
	return b.String()
}

// 10 000 servers are within the bounds, whichever way they are written.
func TestManyServers(t *testing.T) {
	for name, server := range map[string]string{
		"short": "      - {name: web-%d-%d, address: 172.16.%d.%d, weight: 100, checks: [web]}\n",
		"long": "      - name: \"a-server-of-the-farm-%d-%d\"\n        # in the second rack\n        address: \"172.16.%d.%d:80\"\n        weight: 100\n        checks:\n          - web\n" +
			"        notify_up: [/usr/local/bin/notify, --up]\n        notify_down: [/usr/local/bin/notify, --down]\n",
	} {
		text := farm(100, 100, server)
		begin := time.Now()
		c, err := Load(write(t, text))
		t.Logf("%s: %d bytes in %s", name, len(text), time.Since(begin))
		if err != nil || len(c.Services) != 100 || len(c.Services[99].Servers) != 100 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many mistakes do not take long either.
func TestManyMistakes(t *testing.T) {
	var err error
	took := testenv.ThreadTime(t, func() {
		_, err = Load(write(t, farm(100, 100, "      - {name: a b%d-%d, address: 172.300.%d.%d, weight: -1, checks: [web, none, other]}\n")))
	})
	var mistakes Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) != maxMistakes || took > 10*time.Second {
		t.Errorf("%d mistakes in %s", len(mistakes), took)
	}
}
