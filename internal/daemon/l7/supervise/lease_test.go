// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLease(t *testing.T) {
	dir := t.TempDir()
	now := sinceBoot()
	for _, c := range []struct {
		patience, since time.Duration
		want            bool
	}{{0, time.Hour, false}, {time.Minute, 0, false}, {time.Minute, time.Minute, true}} {
		if got := expired(dir, now, now-c.since, c.patience); got != c.want {
			t.Errorf("there never was a daemon, %+v: %v", c, got)
		}
	}
	if err := Renew(dir, time.Minute); err != nil {
		t.Fatal(err)
	}
	if expired(dir, sinceBoot(), 0, time.Second) || !expired(dir, sinceBoot()+time.Minute, 0, 0) {
		t.Error("a lease of a minute")
	}
	if err := Renew(dir, 0); err != nil {
		t.Fatal(err)
	}
	if expired(dir, now+1000*time.Hour, 0, time.Second) {
		t.Error("never")
	}
}

// The fallback of what is published is published in its place, once, and kept while it is used.
func TestPublishFallback(t *testing.T) {
	dir := t.TempDir()
	publish := func(fallback bool) {
		t.Helper()
		at, err := NewConfiguration(dir)
		if err != nil {
			t.Fatal(err)
		}
		paths := []string{ConfigFile}
		if fallback {
			paths = append(paths, filepath.Join(Fallback, ConfigFile))
		}
		for _, path := range paths {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(at, path)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(at, path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Publish(dir, at); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := PublishFallback(dir); done || err != nil {
		t.Errorf("without a configuration: %v, %v", done, err)
	}
	publish(false)
	if done, err := PublishFallback(dir); done || err != nil {
		t.Errorf("without a fallback: %v, %v", done, err)
	}
	publish(true)
	at := Published(dir)
	if done, err := PublishFallback(dir); !done || err != nil || Published(dir) != filepath.Join(at, Fallback) {
		t.Errorf("%v, %v, %s", done, err, Published(dir))
	}
	if done, err := PublishFallback(dir); done || err != nil {
		t.Errorf("twice: %v, %v", done, err)
	}
	l := links{dir: dir}
	if err := l.try(false); err != nil {
		t.Fatal(err)
	}
	for range kept + 3 {
		publish(true)
	}
	if _, err := os.Stat(filepath.Join(Loaded(dir), ConfigFile)); err != nil {
		t.Errorf("what is loaded was removed: %v", err)
	}
}
