// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	web    = "-t 10.20.0.1:80"
	webURL = "http://10.20.0.1/"
)

func (l *ldirectord) web(what, weights, answers string) {
	l.t.Helper()
	l.stage(what, web, weights, answers, func() (string, error) { return l.whoServes(webURL) })
}

// Dead servers get weight 0 and their connections live on; with none left the
// fallback serves; the revived have their weights again.
func TestLdirectordQuiesces(t *testing.T) {
	f := newFarm(t, 4) // the last is the fallback
	want := f.publish("download", 32<<20)
	l := startLdirectord(t, f, "quiescent.cf")
	l.web("start", "s1=1 s2=2 s3=1", "s1 s2 s3")

	download := f.browseFrom("s2", webURL+"download", patience)
	defer download.Body.Close()
	f.drain(1)
	l.web("s2 takes no connections", "s1=1 s2=0 s3=1", "s1 s3")
	got := sha256.New()
	if _, err := io.Copy(got, download.Body); err != nil || [sha256.Size]byte(got.Sum(nil)) != want {
		t.Errorf("the download from the quiescent s2 did not come out whole: %v", err)
	}
	f.revive(1)
	l.web("s2 takes them again", "s1=1 s2=2 s3=1", "s1 s2 s3")

	for i := range 3 {
		f.kill(i)
	}
	l.web("all dead", "s1=0 s2=0 s3=0 s4=1", "s4")
	f.revive(1)
	l.web("s2 revived", "s1=0 s2=2 s3=0", "s2")
	f.revive(0)
	f.revive(2)
	l.web("all revived", "s1=1 s2=2 s3=1", "s1 s2 s3")
	l.stop()
}

// publish puts a file of random bytes on every real server.
func (f *farm) publish(name string, size int) (sum [sha256.Size]byte) {
	f.t.Helper()
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	for _, s := range f.Servers {
		if err := os.WriteFile(filepath.Join(f.files, s.Name, "html", name), data, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	return sha256.Sum256(data)
}

// A changed configuration changes services and servers that are there, as does
// another daemon after one that was killed: the table is its memory.
func TestLdirectordTakesOverTheTable(t *testing.T) {
	f := newFarm(t, 4)
	l := startLdirectord(t, f, "quiescent.cf")
	l.web("start", "s1=1 s2=2 s3=1", "s1 s2 s3")
	if o := l.command("status"); o.status != 0 || !strings.Contains(o.stderr, "is running with pid") {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}

	l.kill9()
	l.web("daemon killed", "s1=1 s2=2 s3=1", "s1 s2 s3")
	f.kill(0)
	l.do("start")
	l.web("daemon started again", "s1=0 s2=2 s3=1", "s2 s3")
	f.revive(0)

	l.configure("reloaded.cf")
	l.do("reload")
	l.web("reloaded", "s1=3 s2=1", "s1 s2")
	l.stage("service added", "-t 10.20.0.1:8080", "s3=1", "s3",
		func() (string, error) { return f.whoServes("http://10.20.0.1:8080/") })
	if table := must(t, f.Director, "", "ipvsadm", "-Sn"); !strings.Contains(table, "-A "+web+" -s wlc\n") {
		t.Errorf("the scheduler is not that of the new configuration:\n%s", table)
	}
	l.stop()
	if o := l.command("status"); o.status != 3 {
		t.Errorf("stopped: status %d: %s", o.status, o.stdout)
	}
}

// Without quiescence dead servers leave the table; with none left, and no
// fallback, clients are refused.
func TestLdirectordRemoves(t *testing.T) {
	f := newFarm(t, 3)
	l := startLdirectord(t, f, "removing.cf")
	l.web("start", "s1=1 s2=1", "s1 s2")
	f.kill(0)
	l.web("s1 dead", "s2=1", "s2")
	f.kill(1)
	l.web("all dead", "", "refused")
	f.revive(0)
	l.web("s1 revived", "s1=1", "s1")
	f.revive(1)
	l.web("s2 revived", "s1=1 s2=1", "s1 s2")
	l.configure("grown.cf") // autoreload: it finds that out itself
	l.web("reloaded by itself", "s1=1 s2=1 s3=1", "s1 s2 s3")
	l.stop()
}

// A persistent service by mark, whose clients move when their server is removed,
// and a service of datagrams, whose servers are checked by ping.
func TestLdirectordMarksAndDatagrams(t *testing.T) {
	f := newFarm(t, 2)
	f.replyToDatagrams("53")
	must(t, f.Director, "", "mark", "add", "10.20.0.2/32", "3")
	l := startLdirectord(t, f, "marks.cf")
	const mark, dns = "-f 3", "-u 10.20.0.1:53"
	served := func() (string, error) { return f.whoServes("http://10.20.0.2/") }
	echoed := func() (string, error) { return f.whoEchoes("10.20.0.1:53") }

	l.stage("datagrams", dns, "s1=1 s2=1", "s1 s2", echoed)
	await(t, "mark", func() error {
		if got := l.weights(mark); got != "s1=1 s2=1" {
			return fmt.Errorf("servers: %s", got)
		}
		return nil
	})
	first, err := served()
	if err != nil || strings.Contains(first, " ") {
		t.Fatalf("a persistent client met %q, %v", first, err)
	}
	other := map[string]string{"s1": "s2", "s2": "s1"}[first]
	f.kill(f.number(first))
	l.stage(first+" dead", mark, other+"=1", other, served)
	f.revive(f.number(first))
	l.stage(first+" revived", mark, "s1=1 s2=1", other, served)

	if err := f.Servers[0].Namespace.Sysctl("net.ipv4.icmp_echo_ignore_all", "1"); err != nil {
		t.Fatal(err)
	}
	l.stage("s1 mute", dns, "s1=0 s2=1", "s2", echoed)
	if err := f.Servers[0].Namespace.Sysctl("net.ipv4.icmp_echo_ignore_all", "0"); err != nil {
		t.Fatal(err)
	}
	l.stage("s1 pings", dns, "s1=1 s2=1", "s1 s2", echoed)
	l.stop()
}
