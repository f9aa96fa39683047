// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/lab/topology"
)

// What keepalived, ldirectord and ipvsadm had serves traffic, and a dead server leaves
// the rotation where there were checks.
func TestImportServes(t *testing.T) {
	for _, one := range []struct {
		name, text string
		status     int // of imbang import: 1 with losses
		checked    bool
	}{
		{"keepalived.conf", `
virtual_server VIP 80 {
    delay_loop 1
    lb_algo rr
    lb_kind NAT
    protocol TCP
    real_server S1 80 {
        weight 1
        HTTP_GET {
            url {
              path /
              status_code 200
            }
            connect_timeout 1
            retry 1
            delay_before_retry 1
        }
    }
    real_server S2 80 {
        weight 1
        TCP_CHECK {
            connect_timeout 1
        }
    }
}
`, 0, true},
		{"ldirectord.cf", `
checktimeout=1
checkinterval=1
virtual=VIP:80
	real=S1:80 masq
	real=S2:80 masq
	scheduler=rr
	service=http
	request="/"
`, 1, true}, // redirects are not followed
		{"ipvsadm.save", "-A -t VIP:80 -s rr\n-a -t VIP:80 -r S1:80 -m -w 1\n-a -t VIP:80 -r S2:80 -m -w 1\n", 0, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			k := newKeeper(t, 2, checkEvery)
			text := strings.NewReplacer("VIP", k.Virtual(topology.IPv4).String(), "S1", k.Servers[0].Addr[topology.IPv4].String(), "S2", k.Servers[1].Addr[topology.IPv4].String()).Replace(one.text)
			file := filepath.Join(k.dir, one.name)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			o := imbang(t, k.Director, "", "import", file)
			if o.status != one.status {
				t.Fatalf("status %d, want %d: %s", o.status, one.status, o.stderr)
			}
			k.configure(o.stdout)
			k.do("reload")
			up := func() (n int) {
				for _, s := range k.status().Services[0].Servers {
					if s.State == "up" {
						n++
					}
				}
				return n
			}
			if one.checked { // servers of a ldirectord.cf begin down
				k.await("both", func() bool { return up() == 2 })
			}
			if n := ask(t, k.Cluster, 20, patience); n != 20 {
				t.Errorf("%d of 20 requests answered", n)
			}
			if !one.checked {
				return
			}
			for i := range 2 {
				k.kill(i)
				k.await("a dead server", func() bool { return up() == 1 })
				if n := ask(t, k.Cluster, 20, patience); n != 20 {
					t.Errorf("%d of 20 requests answered without server %d", n, i)
				}
				k.revive(i)
				k.await("both", func() bool { return up() == 2 })
			}
		})
	}
}
