// SPDX-License-Identifier: Apache-2.0

// Package bench measures imbang's own cost: that of forwarding against doing
// without it, both sides taking turns in one run (bulk.go), and that of its
// commands on large tables (restore.go), that of a packet in its programs
// (packets.go) and end to end, beside others' (flood.go).
//
// It builds its cluster with the lab's topology, servers and engines, and
// drives imbang by its commands. It does not look into BPF.
package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// BulkConfig says what to download, and how often.
type BulkConfig struct {
	Megabytes  int    // size of the file, 10^6 bytes each
	Pairs      int    // downloads of each side
	Executable string // path of imbang
	Progress   func(done, all int)
}

// BulkResult compares a download through the director with one that the
// kernel merely forwards, in the same topology.
type BulkResult struct {
	Megabytes int           `json:"megabytes"`
	Intact    bool          `json:"intact"` // SHA-256 of every side's first download
	SHA256    string        `json:"sha256"`
	Imbang    stats.Summary `json:"imbang_mb_per_s"`
	Direct    stats.Summary `json:"direct_mb_per_s"`
	Ratio     stats.Summary `json:"ratio"` // imbang / direct, pair by pair
}

// sides are what takes turns; the ratio is the first over the second.
var sides = [2]string{"imbang", "direct"}

const bulkFile = "bulk.bin"

// bulkPath is where nginx has it.
const bulkPath = server.LargeFiles + bulkFile

// bulk is a run in progress.
type bulk struct {
	BulkConfig
	cluster *topology.Cluster
	servers []server.Server
	sum     string // of the file, hexadecimal
}

// Bulk carries the comparison out. Nothing is left behind.
func Bulk(ctx context.Context, c BulkConfig) (result *BulkResult, err error) {
	name, err := newLabRun()
	if err != nil {
		return nil, err
	}
	files, err := tempDir(name)
	if err != nil {
		return nil, err
	}
	b := &bulk{BulkConfig: c}
	defer func() { err = errors.Join(err, b.down(), os.RemoveAll(files)) }()
	if err := b.up(name, files); err != nil {
		return nil, err
	}
	return b.compare(ctx)
}

// up builds the cluster, with the same file on every server.
func (b *bulk) up(name host.Run, files string) error {
	var err error
	if b.cluster, err = topology.Build(name, topology.Spec{ClientNamespaces: 1, ClientAddresses: 1, Servers: 3}); err != nil {
		return err
	}
	file := filepath.Join(files, bulkFile)
	if b.sum, err = writeRandom(file, b.Megabytes); err != nil {
		return err
	}
	b.servers, err = startFileServers(b.cluster, files, file)
	return err
}

// startFileServers starts a server in each of a cluster's namespaces, with a
// page and a large file, which they share.
func startFileServers(c *topology.Cluster, dir, file string) (list []server.Server, err error) {
	for _, s := range c.Servers {
		n, err := server.Start(s.Namespace, s.Name, study.Server{Kind: study.Nginx, Page: pageSize}, dir, "")
		if err != nil {
			return list, err
		}
		list = append(list, n)
		if err := os.Link(file, filepath.Join(dir, s.Name, "html", bulkPath)); err != nil {
			return list, err
		}
	}
	return list, nil
}

func (b *bulk) down() error {
	for _, s := range b.servers {
		s.Stop()
	}
	if b.cluster == nil {
		return nil
	}
	return b.cluster.Close()
}

// writeRandom writes a file whose content repeats nowhere, and returns its
// SHA-256.
func writeRandom(path string, megabytes int) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	source := rand.NewChaCha8([32]byte{1})
	_, err = io.CopyN(io.MultiWriter(f, h), source, int64(megabytes)*1e6)
	return fmt.Sprintf("%x", h.Sum(nil)), errors.Join(err, f.Close())
}

func (b *bulk) compare(ctx context.Context) (*BulkResult, error) {
	r := &BulkResult{Megabytes: b.Megabytes, Intact: true, SHA256: b.sum}
	speeds := map[string][]float64{}
	var ratios []float64
	for pair := range b.Pairs {
		// The order alternates, so that neither side always comes first.
		for turn := range 2 {
			side := sides[(pair+turn)%2]
			speed, intact, err := b.download(ctx, side, pair == 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side, err)
			}
			r.Intact = r.Intact && intact
			speeds[side] = append(speeds[side], speed)
			if b.Progress != nil {
				b.Progress(2*pair+turn+1, 2*b.Pairs)
			}
		}
		ratios = append(ratios, speeds[sides[0]][pair]/speeds[sides[1]][pair])
	}
	r.Imbang, r.Direct = stats.Summarize(speeds["imbang"]), stats.Summarize(speeds["direct"])
	r.Ratio = stats.Summarize(ratios)
	return r, nil
}

// download fetches the file on a freshly started side and returns the speed in
// MB/s. With verify it is fetched once more before, to check every byte:
// hashing would slow the timed download down.
func (b *bulk) download(ctx context.Context, side string, verify bool) (speed float64, intact bool, err error) {
	e, ok := engine.New(side, b.Executable)
	if !ok {
		return 0, false, fmt.Errorf("no engine of that name")
	}
	setup := engine.Setup{Cluster: b.cluster, Family: topology.IPv4, Servers: b.cluster.Servers, Scheduler: "rr", Weights: []int{1, 1, 1}}
	instance, err := e.Start(ctx, setup)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, instance.Stop(context.WithoutCancel(ctx))) }()
	client := b.cluster.Clients[0].Namespace
	for i, s := range b.servers {
		if err := s.WaitReady(ctx, client, netip.AddrPortFrom(b.cluster.Servers[i].Addr[topology.IPv4], server.Port)); err != nil {
			return 0, false, err
		}
	}
	intact = true
	if verify {
		h := sha256.New()
		if _, err := fetch(ctx, client, instance.Targets()[0].String(), h, b.Megabytes); err != nil {
			return 0, false, err
		}
		intact = fmt.Sprintf("%x", h.Sum(nil)) == b.sum
	}
	elapsed, err := fetch(ctx, client, instance.Targets()[0].String(), nil, b.Megabytes)
	return float64(b.Megabytes) / elapsed.Seconds(), intact, err
}
