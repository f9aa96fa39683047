// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kernelMemory is what the kernel says that it uses itself.
type kernelMemory struct {
	slab  int64            // bytes of small objects that it cannot give back
	fixed int64            // bytes of them, of larger areas, and of CPUs' copies
	slabs map[string]cache // by name; nil where the kernel does not say
}

// cache is one of the kernel's stores of objects of one size.
type cache struct{ objects, size int64 }

// readKernelMemory reads /proc/meminfo and, where it is, /proc/slabinfo.
func readKernelMemory() (kernelMemory, error) {
	// CPUs keep their share of the sums for a while; this collects it.
	// Kernels without it are off by some hundred KB.
	_ = os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0)
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return kernelMemory{}, err
	}
	bytes := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err == nil {
			bytes[name] = n << 10
		}
	}
	m := kernelMemory{slab: bytes["SUnreclaim"]}
	m.fixed = m.slab + bytes["VmallocUsed"] + bytes["Percpu"]
	if text, err = os.ReadFile("/proc/slabinfo"); err == nil {
		m.slabs = parseSlabs(string(text))
	}
	return m, nil
}

// parseSlabs reads lines of name, objects in use, objects, size and more.
func parseSlabs(text string) map[string]cache {
	slabs := map[string]cache{}
	for line := range strings.Lines(text) {
		var c cache
		var name string
		var all int64
		if n, _ := fmt.Sscan(line, &name, &c.objects, &all, &c.size); n == 4 {
			slabs[name] = c
		}
	}
	return slabs
}

// settledMemory reads until nothing changes: the kernel frees what ended some
// time afterwards.
func settledMemory() (kernelMemory, error) {
	const same, tries = 128 << 10, 30
	last, err := readKernelMemory()
	for range tries {
		if err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
		var m kernelMemory
		m, err = readKernelMemory()
		if d := m.fixed - last.fixed; -same < d && d < same {
			return m, err
		}
		last = m
	}
	return last, err
}

// SlabUse is how many objects of a size the kernel allocated for each
// connection.
type SlabUse struct {
	Cache         string  `json:"cache"`
	Bytes         int64   `json:"object_bytes"`
	PerConnection float64 `json:"per_connection"`
}

// grown lists the caches that have a good part of an object more for each of
// n connections.
func (m kernelMemory) grown(before kernelMemory, n int) (use []SlabUse) {
	for name, c := range m.slabs {
		each := float64(c.objects-before.slabs[name].objects) / float64(n)
		if each > 0.1 {
			use = append(use, SlabUse{name, c.size, each})
		}
	}
	slices.SortFunc(use, func(a, b SlabUse) int { return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Cache, b.Cache)) })
	return use
}
