// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"encoding/json"
	"flag"

	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	imbang "imbang/internal/director"
	"imbang/internal/model"
)

var (
	sendEntries = flag.Int("send-entries", 50000, "entries that TestMigrateSend sends, at most 60000")
	sendRates   = flag.String("send-rates", "", "rates that TestMigrateSend measures beside the default one [entries/s], separated by commas")
)

// insert makes entries of I: established connections of made-up clients.
func (p *pair) insert(n int) {
	p.Helper()
	p.must(p.i.ns.Do(func() error {
		d, err := imbang.Open()
		if err != nil {
			return err
		}
		defer d.Close()
		virtual, server := netip.MustParseAddrPort("10.10.1.1:80"), netip.MustParseAddrPort("172.16.0.2:80")
		var all []model.Connection
		for i := range n {
			all = append(all, model.Connection{
				Protocol: model.TCP, State: "ESTABLISHED", Expires: 10 * time.Minute, Virtual: virtual, Server: server, RealServer: server,
				Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 11, byte(i >> 16), byte(i >> 8)}), uint16(1024+i&0xff)),
				Service: model.AddrKey(model.TCP, virtual), Forward: model.Masquerade,
			})
		}
		for batch := range slices.Chunk(all, imbang.InsertBatch) {
			errs, err := d.Insert(batch)
			if err != nil {
				return err
			}
			for _, err := range errs {
				if err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// With its default rate and repetition imbang migrate send loses nothing on the way to a
// kernel with default buffers, which here is an emulated one with one processor. At other
// rates, sent once, it is measured what arrives.
func TestMigrateSend(t *testing.T) {
	p := newPair(t)
	p.onI(strings.Join(pairTable, "\n")+"\n", "ipvsadm", "-R")
	p.insert(*sendEntries)
	rates := []string{""}
	if *sendRates != "" {
		rates = append(rates, strings.Split(*sendRates, ",")...)
	}
	for i, rate := range rates {
		if i > 0 { // ip_vs has to begin empty
			p.guest.Close()
			p.boot()
		}
		p.restoreK()
		p.onK("ipvsadm --start-daemon backup --mcast-interface eth2 --syncid 7")
		args := []string{"migrate", "send", "--interface", "sync0", "--sync-id", "7", "--output", "json"}
		if rate != "" {
			args = append(args, "--rate", rate, "--repeat", "1")
		}
		var sent struct {
			Entries, Messages int
			Seconds           float64
		}
		p.must(json.Unmarshal([]byte(p.onI("", args...)), &sent))
		time.Sleep(2 * time.Second)
		entered, err := strconv.Atoi(strings.TrimSpace(p.onK("wc -l </proc/net/ip_vs_conn")))
		p.must(err)
		entered--
		t.Logf("rate %q: %d of %d entries arrived, %d messages in %.2f s; %s", rate, entered, sent.Entries, sent.Messages, sent.Seconds,
			strings.TrimSpace(p.onK("awk '/^Udp: [0-9]/ {print \"UDP RcvbufErrors\", $6}' /proc/net/snmp; cat /proc/sys/net/core/rmem_default")))
		if sent.Entries != *sendEntries || rate == "" && entered != sent.Entries {
			t.Errorf("%d entries, %d sent, %d arrived", *sendEntries, sent.Entries, entered)
		}
	}
}
