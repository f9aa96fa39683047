// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/config"
)

var update = flag.Bool("update", false, "write the golden files")

var testNames = Names{
	Host: func(name string, six bool) (netip.Addr, error) {
		if name == "web.example.org" && !six {
			return netip.MustParseAddr("172.16.0.7"), nil
		}
		return netip.Addr{}, errors.New("no such host")
	},
	Port: func(network, name string) (int, error) {
		if port, known := map[string]int{"http": 80, "domain": 53}[name]; known && (name != "http" || network != "udp") { // as /etc/services
			return port, nil
		}
		return 0, errors.New("unknown port")
	},
}

func importOne(t testing.TB, name string, text []byte, from Source) (*Result, error) {
	switch Format(text) {
	case "keepalived":
		return Keepalived(t.Context(), name, text, from)
	case "ldirectord":
		return Ldirectord(t.Context(), name, text, testNames)
	case "ipvsadm":
		return Ipvsadm(name, text)
	}
	return nil, errors.New("no format")
}

// valid reports whether imbang run takes a configuration.
func valid(t testing.TB, text []byte) error {
	t.Helper()
	name := filepath.Join(t.TempDir(), "imbang.yaml")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(name)
	return err
}

func TestImport(t *testing.T) {
	for _, name := range []string{"keepalived.conf", "keepalived.vrrp.conf", "ldirectord.cf", "ipvsadm.save"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			r, err := importOne(t, name, text, Source{Dir: "testdata", Files: ReadFiles})
			if err != nil {
				t.Fatal(err)
			}
			got := r.YAML()
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Error(d)
			}
			if err := valid(t, got); err != nil {
				t.Errorf("imbang run does not take it: %v", err)
			}
		})
	}
}

// Files that are none are refused with their place.
func TestImportRefuses(t *testing.T) {
	for _, one := range []struct{ text, want string }{
		{"virtual_server 10.0.0.1 80 {\n", "x:1: the block virtual_server 10.0.0.1 80 does not end: write its } behind its last line"},
		{"virtual_server 10.0.0.1 80 {\n}\n}\n", "x:3: a } without a {"},
		{"global_defs {\n {\n", "x:2: a block without a name"},
		{"global_defs {\n router_id \"x\n}\n", `x:2: a quote that does not end: "x`},
		{"checkinterval=1\n\treal=1.2.3.4\n", "x:2: real=1.2.3.4: indented, but no virtual= is above"},
		{"checkinterval=1\nhello\n", "x:2: hello: want key = value"},
	} {
		if _, err := importOne(t, "x", []byte(one.text), Source{}); err == nil || err.Error() != one.want {
			t.Errorf("%q: %v, want %s", one.text, err, one.want)
		}
	}
}

// samples are the directories of Debian's examples, and how many there are.
var samples = map[string]int{"/usr/share/doc/keepalived/samples": 25, "/usr/share/doc/ldirectord/examples": 1}

// Debian's examples become configurations that imbang run takes.
func TestDebianSamples(t *testing.T) {
	for dir, want := range samples {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if len(names) == 0 {
				t.Skip("the Debian package is not installed")
			}
			found := 0
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), "\nvirtual") || strings.Contains(string(text), "\nvrrp_instance") {
					found++
					t.Run(filepath.Base(name), func(t *testing.T) { importSample(t, name, text) })
				}
			}
			if found < want {
				t.Errorf("%d examples, want %d", found, want)
			}
		})
	}
}

func importSample(t *testing.T, name string, text []byte) {
	r, err := importOne(t, name, text, Source{Dir: filepath.Dir(name), Files: ReadFiles})
	if err != nil {
		t.Fatal(err)
	}
	if err := valid(t, r.YAML()); err != nil || r.Servers()+r.Groups() == 0 {
		t.Errorf("%d servers, %d groups, %v\n%s", r.Servers(), r.Groups(), err, r.YAML())
	}
	for _, l := range r.Losses {
		t.Log(l)
	}
}

// fuzzed are forms that the files of testdata do not have.
var fuzzed = []string{
	"$N=7\n$RS= \\\n real_server 10.0.1.${N} 80 { \\\n weight ${N} \\\n }\nvirtual_server 10.0.0.1 80 {\n$RS\n}\n",
	"virtual_server fwmark 7 {\n~SEQ(I,1,2,9) real_server 10.0.1.${I} 80 { }\n~LST({A,B},{1,2},{3}) real_server 10.${A}.${B}.1 80 { }\n}\n",
	"virtual_server 10.0.0.1 80 {\n@main real_server 10.0.1.1 80 {\n@^main real_server 10.0.1.2 80 {\nweight ${_INSTANCE}\n}\n@main quorum 2\n}\n",
	"virtual_server 10.0.0.1 {\nlb_kind TUN type gue port 5 remcsum\nsorry_server ::1 8 \nreal_server 10.0.1.1 8 {\nHTTP_GET {\nurl {\npath \"/${_HASH}\"\nregex \"[]$][[:a:]$]\\\\d$\"\nregex_options caseless\n}\n}\n}\n}\n",
	"virtual_server 10.0.0.1 80 {\nreal_server 10.0.1.1 80 {\nMISC_CHECK {\nmisc_path \"/bin/a 'b c' \\x41\\cA\"\nuser a b\n}\nUDP_CHECK {\npayload a bcd\n}\n}\n}\n",
	"virtual_server 10.0.0.1 80 {\ndelay_loop 1\nretry 4294967295\npersistence_granularity 24\nflag-2\nquorum_up \"a b\"\nreal_server 10.0.1.1/24 80 {\nSMTP_CHECK {\nhost {\nconnect_timeout 5x\nretry\n}\n}\nMISC_CHECK {\nmisc_path \"probe x\"\n}\nSSL_GET {\nnb_get_retry 3\nsni_name a\nurl {\npath /\nusername a\npassword b\nregex a\nregex_max_offset 3\n}\n}\n}\n}\n",
	"virtual_server_group G {\n10.0.0.1-5 80\nfwmark 4294967295 inet6\n2001:db8::/126\n}\nvirtual_server group G {\nreal_server ::1 080 {\nTCP_CHECK\n}\n}\n",
	"global_defs {\nscript_user a b\nnotification_email {\na@b\n}\nlvs_timeouts tcp 1 udp\n}\ninclude ${_PWD}/*\n",
	"supervised\nvirtual=7\n\treal=10.0.1.1->10.0.1.3 gate 2 \"a\" \"b$\" l:1 u:9\n\tservice=http\n\tchecktype=negotiate\n\thttpmethod=HEAD\n",
	"virtual6=[2001:db8::1]:80\n\treal6=[2001:db8::2]:8080 gate\n\tschedflags=\"a, b\"\n\tchecktype=ping\n\tcheckcount=3\n\tfallback6=[::1]\n",
	"virtual=7\n\treal=10.0.1.1 gate \"a\\n\", \"b\"\n\treal=10.0.1.2 gate\n\tservice=simpletcp\n\tcheckport=1\n\treceive=\"x+\"\n\tfailurecount=3\n",
	"virtual=10.0.0.1:53\n\treal=10.0.1.1:53 masq\n\tprotocol=udp\n\trequest=\"a..b\"\n",
	"virtual_server 10.0.0.1 80 dev e {\nlb_kind TUN\nomega 1\nquorum_down \"/bin/a | b\"\nreal_server ::1 80 x {\nHTTP_GET {\nconnect_ip 10.0.0.1\nhttp_protocol 1.0\nurl {\npath /\n}\n}\n}\n}\nvrrp_instance a {\ninterface e\nvirtual_router_id 1\nmcast_src_ip 224.0.0.1\nunicast_peer {\n10.0.0.2\n10.0.0.2\n}\nvirtual_ipaddress {\n10.0.0.3\n}\n}\n",
	"virtual=10.0.0.1:53\n\treal=10.0.1.1:53 masq\n\tops=yes\n\tnetmask=255.0.0.0\n\tchecktype=external\n\tcheckcommand=\"/a b\"\n",
}

// Whatever is read, what is written is YAML that the configuration's reader takes, or says
// what is wrong with values; it never breaks the form.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"keepalived.conf", "keepalived.vrrp.conf", "ldirectord.cf", "ipvsadm.save"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range fuzzed {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := importOne(t, "x", text, Source{})
		if err != nil {
			return
		}
		r.Check(refused)
		var mistakes config.Mistakes
		if err := valid(t, r.YAML()); err != nil && !errors.As(err, &mistakes) {
			t.Errorf("%v\n%s", err, r.YAML())
		}
		for _, m := range mistakes {
			if strings.Contains(m.Error(), "unknown key") || strings.Contains(m.Error(), "want a mapping") {
				t.Errorf("%v\n%s", m, r.YAML())
			}
		}
	})
}
