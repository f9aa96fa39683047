// SPDX-License-Identifier: Apache-2.0

package acceptance

import "testing"

// Habits of those who have scripts for ipvsadm, Debian's ipvsadm-save and
// ipvsadm-restore among them. One works on the table that the last one left.
func TestScripts(t *testing.T) {
	f := newFarm(t, 2)
	served := func() string {
		t.Helper()
		names, err := f.whoServes(webURL)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	const saved = "-A -t 10.20.0.1:80 -s wrr\n" +
		"-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m -w 3\n" +
		"-a -t 10.20.0.1:80 -r 172.16.0.3:80 -m -w 1\n" +
		"-A -f 3 -s sh -p 60 -b sh-port\n"
	for _, c := range []struct{ name, script, prints, served string }{
		{"set up by what is there", `
			for again in 1 2; do
				ipvsadm -E -t 10.20.0.1:80 -s wrr 2>&- || ipvsadm -A -t 10.20.0.1:80 -s wrr
				for server in 172.16.0.2:3 172.16.0.3:1; do
					set -- -t 10.20.0.1:80 -r ${server%:*}:80 -m -w ${server#*:}
					ipvsadm -e "$@" 2>&- || ipvsadm -a "$@"
				done
			done
			ipvsadm -Ln | grep -q '^FWM  3 ' || ipvsadm -A -f 3 -s sh -b sh-port -p 60
			ipvsadm -Sn`, saved, "s1 s2"},
		{"save, clear, restore", `
			ipvsadm-save -n >file
			ipvsadm -C
			ipvsadm-save -n
			echo cleared
			{ echo '# saved by hand'; cat file; } | ipvsadm-restore
			ipvsadm-save -n | cmp file - && cat file`, "cleared\n" + saved, "s1 s2"},
		{"save by name", `ipvsadm-save | head -n 2`,
			"-A -t 10.20.0.1:http -s wrr\n-a -t 10.20.0.1:http -r 172.16.0.2:http -m -w 3\n", "s1 s2"},
		{"restore what sed made of it", `
			ipvsadm-save -n | sed '/172.16.0.3/s/-w 1/-w 0/' | ipvsadm-restore
			ipvsadm -Sn | grep -c -e '-w 0'`, "1\n", "s1"},
		{"pick columns", `
			ipvsadm -Ln | awk '/^TCP/ { s = $2 } $1 == "->" && s { print s, $2, $3, $4 }'
			ipvsadm -Ln | awk '$4 == 0 && /Masq/ { print $2 }'
			ipvsadm -L -n -t 10.20.0.1:80 | tail -n +4 | wc -l`,
			"10.20.0.1:80 172.16.0.2:80 Masq 3\n10.20.0.1:80 172.16.0.3:80 Masq 0\n172.16.0.3:80\n2\n", "s1"},
		{"count", `
			ipvsadm -Z
			ipvsadm -Ln --stats --exact | awk '/172.16.0.2/ { print $3 }'
			ipvsadm -Lcn | awk '/^TCP/ && $6 == "172.16.0.2:80" { n++ } END { print (n > 0) }'`,
			"0\n1\n", "s1"},
		{"watch, and read no further than the first line", `
			for n in 1 2 3 4 5 6 7 8; do ipvsadm -Ln --rate | head -n 1; done | sort | uniq -c | tr -s ' '`,
			" 8 IP Virtual Server version 1.2.1 (size=4096)\n", "s1"},
		{"drain and take out", `
			ipvsadm -e -t 10.20.0.1:80 -r 172.16.0.3:80 -m -w 1
			ipvsadm -e -t 10.20.0.1:80 -r 172.16.0.2:80 -m -w 0
			ipvsadm -d -t 10.20.0.1:80 -r 172.16.0.2:80
			ipvsadm -d -t 10.20.0.1:80 -r 172.16.0.2:80 2>&1 || echo $?`,
			"No such destination\n255\n", "s2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := finish(t, f.Director, disguised(t, "bash", "-c", c.script), "")
			if o.stdout != c.prints || o.stderr != "" {
				t.Errorf("printed %q, want %q; said %q", o.stdout, c.prints, o.stderr)
			}
			if got := served(); got != c.served {
				t.Errorf("answers from %s, want %s", got, c.served)
			}
		})
	}
	// It was imbang that they spoke to.
	const left = "-A -t 10.20.0.1:80 -s wrr\n-a -t 10.20.0.1:80 -r 172.16.0.3:80 -m -w 1\n-A -f 3 -s sh -p 60 -b sh-port\n"
	if got := must(t, f.Director, "", "ipvsadm", "-Sn"); got != left {
		t.Errorf("the table is\n%s, want\n%s", got, left)
	}
}
