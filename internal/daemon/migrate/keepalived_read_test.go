// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// read is the statements of a keepalived.conf, one a line, with their blocks.
func read(t *testing.T, text string, from Source) (lines []string, r *Result, err error) {
	t.Helper()
	r = newResult("x")
	top, err := confRead(t.Context(), r, "x", []byte(text), from)
	var write func(list []*statement)
	write = func(list []*statement) {
		for _, s := range list {
			lines = append(lines, s.text())
			if s.open {
				lines = append(lines, "{")
				write(s.block)
				lines = append(lines, "}")
			}
		}
	}
	write(top)
	return lines, r, err
}

// Lines are read as keepalived 2.2.7 reads them: its manual and lib/parser.c.
func TestKeepalivedLines(t *testing.T) {
	for _, one := range []struct {
		name, id, text string
		want           []string
		losses         []string
	}{
		{"at use", "", "$BASE=10.2.${SUB}\n$SUB=0\na ${BASE}.100\n$SUB=10\na ${BASE}.100", []string{"a 10.2.0.100", "a 10.2.10.100"}, nil},
		{"before words", "", "$VIP=10.0.0.1 80\nvirtual_server $VIP {\n}", []string{"virtual_server 10.0.0.1 80", "{", "}"}, nil},
		{"words of one", "", "$N=7\npath /app/${N}/health", []string{"path /app/7/health"}, nil},
		{"longest name", "", "$N=7\n$NN=8\na $NN $N $NX ${NN}", []string{"a 8 7 $NX 8"}, nil},
		{"comments of a value", "", "$N=a #b\n$M=\"#b\"\na $N\na $M", []string{"a a", "a #b"}, nil},
		{"a block", "", "$RS= \\\n real_server 10.0.1.9 80 { \\\n   weight 5 \\\n }\nv {\n$RS\n}", []string{"v", "{", "real_server 10.0.1.9 80", "{", "weight 5", "}", "}"}, nil},
		{"blocks in blocks", "", "$RS= \\\nrs $N\n$VS= \\\nvs { \\\n$N=1 \\\n$RS \\\n$N=2 \\\n$RS \\\n}\n$VS", []string{"vs", "{", "rs 1", "rs 2", "}"}, nil},
		{"in quotes", "", "$N=7\na \"b ${N} ${HOME}\"", []string{"a b 7 ${HOME}"}, nil},
		{"hash", "", `a "${_HASH}1"`, []string{"a #1"}, nil},
		{"unknown", "", "virtual_server ${X} 80 {\nweight 1\n}\na", []string{"a"}, []string{"x:1: virtual_server ${X} 80: ${X} is not defined: left out"}},
		{"predefined", "", "router_id ${_INSTANCE}\na ${_RANDOM 1 9}\nb ${_PWD}/x", nil, []string{
			"x:1: router_id ${_INSTANCE}: ${_INSTANCE} is another on each machine: say which with --config-id: left out",
			"x:2: a ${_RANDOM}: ${_RANDOM} is a random number: left out",
			"x:3: b ${_PWD}/x: ${_PWD} is the directory of the file, which is not known here: left out"}},
		{"instance", "lb1", "router_id ${_INSTANCE}", []string{"router_id lb1"}, nil},
		{"for some machines", "", "@main $P=5\na $P {\nb\n}\nc", []string{"c"}, []string{
			"x:1: @main $P=5: holds for some machines only (@): say for which with --config-id: left out",
			"x:2: a ${P}: ${P} is defined for some machines only: say for which with --config-id: left out"}},
		{"sequence", "", "~SEQ(I, 1, 3) a 10.0.1.${I}\n~SEQ(I,6,-2,2) b $I\n~SEQx(I,0x8,4,0x10) c $I\n~SEQ(I,2) d $I", []string{
			"a 10.0.1.1", "a 10.0.1.2", "a 10.0.1.3", "b 6", "b 4", "b 2", "c 8", "c c", "c 10", "d 1", "d 2"}, nil},
		{"list", "", "~LST(I, 1, 2) a.${I}\n~LST({A, B}, {10,1},{20}) ~SEQ(C,0,1) ${A}-${B}-${C}", []string{"a.1", "a.2", "10-1-0", "10-1-1", "20--0", "20--1"}, nil},
		{"sequence of blocks", "", "$RS= \\\nrs 10.0.1.${I} { \\\nw 1 \\\n}\n~SEQ(I,1,2) $RS", []string{"rs 10.0.1.1", "{", "w 1", "}", "rs 10.0.1.2", "{", "w 1", "}"}, nil},
		{"no sequence", "", "~SEQ(I,1,0,3) rs 1 {\nw 1\n}\na", []string{"a"}, []string{"x:1: ~SEQ(I,1,0,3) rs 1 {: a sequence without an end: left out with its block"}},
		{"condition", "", "v {\n@main q 2\n}", []string{"v", "{", "}"}, []string{"x:2: @main q 2: holds for some machines only (@): say for which with --config-id: left out"}},
		{"condition of a block", "", "v {\n@main rs 1 {\nw 1\n@main }\n@back rs 2 {\nw 2\n@back }\nrs 3\n}", []string{"v", "{", "rs 3", "}"}, []string{
			"x:2: @main rs 1 {: holds for some machines only (@): say for which with --config-id: left out with its block",
			"x:5: @back rs 2 {: holds for some machines only (@): say for which with --config-id: left out with its block"}},
		{"conditions of one block", "", "v {\n@main rs 1 {\n@^main rs 2 {\nw 1\n}\nrs 3\n}", []string{"v", "{", "rs 3", "}"}, []string{
			"x:2: @main rs 1 {: holds for some machines only (@): say for which with --config-id: left out with its block",
			"x:3: @^main rs 2 {: holds for some machines only (@): say for which with --config-id: left out with its block"}},
		{"condition of a block on the next line", "", "v {\n@main rs 1\n{\nw 1\nx { }\n}\nrs 3\n}", []string{"v", "{", "rs 3", "}"}, []string{
			"x:2: @main rs 1: holds for some machines only (@): say for which with --config-id: left out"}},
		{"conditions that are known", "main", "@main a 1\n@back b 2\n@^back c 3\n$IF=@main\n$IF d 4\n@main $P=5\n@back $P=6\ne $P", []string{"a 1", "c 3", "d 4", "e 5"}, nil},
		{"known block", "main", "@main rs 1 {\n@back rs 2 {\nw 1\n}", []string{"rs 1", "{", "w 1", "}"}, nil},
		{"comment in a word", "", "a b#c d\ne f!g\ni \\#j k\nl \"#m\"", []string{"a b", "e f", "i #j k", "l #m"}, nil},
		{"braces in a word", "", "a b{2}c", []string{"a b", "{", "2", "}", "c"}, nil},
		{"quotes", "", "a 'it b\nc \"d e\"f\ng h\"i j\"", []string{"a 'it b", "c d e f", "g h i j"}, nil},
		{"several in a line", "", "a { b c { d } }", []string{"a", "{", "b c", "{", "d", "}", "}"}, nil},
	} {
		t.Run(one.name, func(t *testing.T) {
			lines, r, err := read(t, one.text, Source{ConfigID: one.id})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(lines, one.want) {
				t.Errorf("%q, want %q", lines, one.want)
			}
			var losses []string
			for _, l := range r.Losses {
				losses = append(losses, l.String())
			}
			if !slices.Equal(losses, one.losses) {
				t.Errorf("losses\n%s\nwant\n%s", strings.Join(losses, "\n"), strings.Join(one.losses, "\n"))
			}
		})
	}
}

func TestEscapedWords(t *testing.T) {
	for _, one := range []struct {
		text string
		want []string // nil: an error
	}{
		{`regex "v\\d+"`, []string{"regex", `v\d+`}},
		{`a "b \"c\" d" 'e "f"' g\ h i"j k"'l'`, []string{"a", `b "c" d`, `e "f"`, "g h", "ij kl"}},
		{`\x41\101\t\cA`, []string{"AA\t\x01"}},
		{`a "b`, nil},
		{`a \`, nil},
		{``, []string{}},
	} {
		got, err := escapedWords(one.text)
		if (err == nil) != (one.want != nil) || !slices.Equal(got, one.want) {
			t.Errorf("%s: %q, %v, want %q", one.text, got, err, one.want)
		}
	}
}

// Files that multiply, and variables that stand for themselves, end with an error.
func TestKeepalivedBounds(t *testing.T) {
	bomb := func(pattern string, limit int) []File {
		return []File{{Name: pattern, Text: []byte(strings.Repeat("include x\n", 10))}}
	}
	big := func(string, int) []File { return []File{{Name: "big", Text: make([]byte, 9<<20)}} }
	for _, one := range []struct {
		name, text, want string
		files            Files
	}{
		{"depth", "include x", "more than 16 files include each other", bomb},
		{"size", "include a\ninclude b", "files of more than 16 MiB are included", big},
		{"sequence", "~SEQ(A,1,1000) ~SEQ(B,1,1000) a", "more than 200000 lines", nil},
		{"sequence of nothing", "~SEQ(I, -2147483648, 2147483647)", "more than 200000 lines", nil},
		{"itself", "$A=$A\na $A", "does it stand for itself?", nil},
		{"grows", "$A=${A}${A}\na ${A}", "does it stand for itself?", nil},
		{"doubles", doubling(), "does it stand for itself?", nil},
		{"a block of itself", "$A= \\\nx \\\n$A\n$A", "more than 64 deep", nil},
		{"sequence of itself", "$A=~SEQ(I,1,2) ${A}\n$A", "more than 64 deep", nil},
	} {
		t.Run(one.name, func(t *testing.T) {
			if _, _, err := read(t, one.text, Source{Files: one.files}); err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("%v, want %s", err, one.want)
			}
		})
	}
}

// Lines are counted, not the parts that braces make of one.
func TestKeepalivedCountsLines(t *testing.T) {
	blocks := strings.Repeat("a { b\n}\n", maxLines/2)
	if _, _, err := read(t, blocks, Source{}); err != nil {
		t.Errorf("%d lines: %v", maxLines, err)
	}
	if _, _, err := read(t, blocks+"c\n", Source{}); err == nil || !strings.Contains(err.Error(), "more than 200000 lines") {
		t.Errorf("%d lines: %v", maxLines+1, err)
	}
}

// doubling is variables of which each stands for two of the one before.
func doubling() string {
	var b strings.Builder
	b.WriteString("$A0=aaaaaaaaaaaaaaaa\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "$A%d=${A%d}${A%d}\n", i, i-1, i-1)
	}
	return b.String() + "a ${A39}\n"
}

func TestKeepalivedEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	files := func(string, int) []File {
		cancel()
		return nil
	}
	if _, err := Keepalived(ctx, "x", []byte("include y\n"), Source{Files: files}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Included files are relative to the file that includes them. Those that keepalived does
// not read are left out one by one.
func TestKeepalivedIncludes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("sub/b.conf", "include ${_PWD}/c.conf\nincludea sub/d.conf\n", 0o644)
	write("sub/c.conf", "c ${_PWD}\n", 0o644)
	write("sub/sub/d.conf", "d\n", 0o644)
	write("many/1.conf", "one\n", 0o644)
	write("many/2.conf", "two\n", 0o755)
	write("many/3.conf/x", "", 0o644)
	write("many/5.conf", "five\n", 0o644)
	if err := syscall.Mkfifo(filepath.Join(dir, "many/4.conf"), 0o644); err != nil {
		t.Fatal(err)
	}
	start, stalls := time.Now(), testenv.WatchStalls(t)
	lines, r, err := read(t, "include sub/b.conf\nincluder many/*\ninclude /dev/zero\ninclude none.conf\n", Source{Dir: dir, Files: ReadFiles})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"c " + dir + "/sub", "d", "one", "five"}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	var losses []string
	for _, l := range r.Losses {
		losses = append(losses, strings.ReplaceAll(l.String(), dir, "DIR"))
	}
	want := []string{
		"DIR/sub/c.conf:1: ${_PWD}: DIR/sub, the directory of this file, is written in its place",
		"x:2: include many/*: DIR/many/2.conf: executable, which keepalived does not include: left out",
		"x:2: include many/*: DIR/many/3.conf: a directory: left out",
		"x:2: include many/*: DIR/many/4.conf: not a regular file: left out",
		"x:3: include /dev/zero: /dev/zero: not a regular file: left out",
		"x:4: include none.conf: no such file",
	}
	if !slices.Equal(losses, want) {
		t.Errorf("losses\n%s\nwant\n%s", strings.Join(losses, "\n"), strings.Join(want, "\n"))
	}
	if d := time.Since(start); d > 10*time.Second+2*stalls.Longest() {
		t.Errorf("took %s, beside stalls of %s", d, stalls.Longest())
	}
}
