// SPDX-License-Identifier: Apache-2.0

package director

import (
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mmapable is BPF_F_MMAPABLE of linux/bpf.h.
const mmapable = 1 << 10

// window is a part of an array map in the kernel's own memory, to be read
// without a system call for each element or a copy of all.
type window[V any] struct {
	memory        []byte
	start, stride int // of the first element, and from one to the next
}

// newWindow opens one on n elements. A director that another version made may
// have maps that do not allow it.
func newWindow[V any](m *ebpf.Map, first, n uint32) (*window[V], error) {
	const word = 8 // the kernel aligns elements to it
	stride := (int(m.ValueSize()) + word - 1) &^ (word - 1)
	from := int(first) * stride
	page := from &^ (os.Getpagesize() - 1)
	memory, err := unix.Mmap(m.FD(), int64(page), from-page+int(n)*stride, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &window[V]{memory, from - page, stride}, nil
}

// at is the i-th element of the window. It is gone when the window is closed.
func (w *window[V]) at(i int) *V {
	at := w.start + i*w.stride
	return (*V)(unsafe.Pointer(&w.memory[at : at+int(unsafe.Sizeof(*new(V)))][0]))
}

func (w *window[V]) close() { _ = unix.Munmap(w.memory) } // it is mapped

// paneElements are what one pane shows: the kernel maps page by page, and the
// pages of a hundred thousand servers take it longer than to look at them.
const paneElements = 2048

// panes are windows side by side on an array map, opened where somebody looks.
type panes[V any] struct {
	of   *ebpf.Map
	open []*window[V]
}

func newPanes[V any](m *ebpf.Map) *panes[V] {
	return &panes[V]{m, make([]*window[V], m.MaxEntries()/paneElements+1)}
}

// at is the i-th element of the map. It is gone when the panes are closed.
func (p *panes[V]) at(i uint32) (*V, error) {
	pane := i / paneElements
	w := p.open[pane]
	if w == nil {
		first := pane * paneElements
		var err error
		if w, err = newWindow[V](p.of, first, min(paneElements, p.of.MaxEntries()-first)); err != nil {
			return nil, err
		}
		p.open[pane] = w
	}
	return w.at(int(i % paneElements)), nil
}

func (p *panes[V]) close() {
	for _, w := range p.open {
		if w != nil {
			w.close()
		}
	}
}

// readArray reads n elements of an array map from the first on.
func readArray[V any](m *ebpf.Map, first, n uint32) ([]V, error) {
	if n == 0 {
		return nil, nil
	}
	w, err := newWindow[V](m, first, n)
	if err != nil {
		all, err := lookupAll[V](m, first+n)
		return all[min(first, uint32(len(all))):], err
	}
	defer w.close()
	values := make([]V, n)
	for i := range values {
		values[i] = *w.at(i)
	}
	return values, nil
}
