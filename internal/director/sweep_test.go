// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/testenv"
)

// What an upgrade that was killed left goes with the director of a network namespace that
// is gone.
func TestSweepInterruptedUpgrade(t *testing.T) {
	r := newRig(t, small)
	_, _, err := r.upgradeTo(ours(t), "another", "start the timers")
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	in := r.instance()
	lock := strings.TrimSuffix(in.dir(), "/bpf/"+filepath.Base(in.dir())) + "/" + filepath.Base(in.dir()) + ".lock"
	r.must(os.WriteFile(lock, []byte("1"), 0o600)) // of a namespace that is no more
	r.gone = true
	// Twice, as two commands that end do it (sweep goes through the same names).
	for range 2 {
		dirs, err := filepath.Glob(in.dir() + "*")
		r.must(err)
		for _, dir := range dirs {
			in.sweepOne(dir)
		}
	}
	if left := r.pins(); len(left) > 0 {
		t.Errorf("left: %q", left)
		r.must(removePins(in.dir() + nextSuffix))
	}
}

// A network namespace lives as long as a descriptor of it, or its name in any mount namespace.
func TestLives(t *testing.T) {
	testenv.Root(t)
	// Another test may make a namespace at once that has the number of the one that is gone.
	for range 20 {
		if number := nameAndDescriptor(t); !lives(number) {
			return
		}
	}
	t.Error("a namespace that is gone lives")
}

// nameAndDescriptor makes a namespace that lives by its name alone, then by a descriptor alone. It
// returns the number of the namespace, which is gone then.
func nameAndDescriptor(t *testing.T) (number string) {
	t.Helper()
	inode := func(path string) string {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return strconv.FormatUint(st.Ino, 10)
	}
	name := filepath.Join(t.TempDir(), "ns")
	hidden := exec.Command("unshare", "--mount", "sh", "-ec", `touch "$1" && unshare --net="$1" true && echo made && cat >/dev/null`, "sh", name)
	end, err := hidden.StdinPipe()
	made, err2 := hidden.StdoutPipe()
	if err := errors.Join(err, err2, hidden.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(made, make([]byte, len("made\n"))); err != nil {
		t.Fatal(err)
	}
	number = inode("/proc/" + strconv.Itoa(hidden.Process.Pid) + "/root" + name)
	if !lives(number) {
		t.Error("a name in another mount namespace is no sign of life")
	}
	descriptor, err := os.Open("/proc/" + strconv.Itoa(hidden.Process.Pid) + "/root" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(end.Close(), hidden.Wait()); err != nil {
		t.Fatal(err)
	}
	if !lives(number) {
		t.Error("a descriptor is no sign of life")
	}
	if err := descriptor.Close(); err != nil {
		t.Fatal(err)
	}
	return number
}

// A director whose devices are there is not removed, although nothing else of its namespace is
// seen, unless they came back to this one.
func TestSweepKeepsAttached(t *testing.T) {
	r := newRig(t, small)
	err := r.attach(clientDev, serverDev, HookTCX)
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	r.must(err)
	in := r.instance()
	r.must(os.WriteFile(filepath.Join(in.base(), filepath.Base(in.dir())+".lock"), []byte("1"), 0o600)) // of a namespace that is no more
	// Beside the director and its upgrade, which may have been killed.
	r.must(os.Mkdir(in.dir()+nextSuffix, 0o700))
	for _, dir := range []string{in.dir(), in.dir() + nextSuffix} {
		if in.sweepOne(dir) {
			t.Fatalf("%s was removed", dir)
		}
	}
	r.must(r.ns.Do(func() error {
		if !in.sweepOne(in.dir()) {
			t.Error("it is not removed where its devices are")
		}
		return nil
	}))
	r.gone = true
}
