// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const packaged = "/usr/share/doc/imbang/"

// shipped maps the files of the package's documentation, by their path in the package, to
// those of the tree.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	var manifest struct {
		Contents []struct{ Src, Dst, Type string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "packaging/nfpm.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range manifest.Contents {
		if !strings.HasPrefix(c.Dst, packaged) {
			continue
		}
		if c.Type != "tree" {
			all[c.Dst] = c.Src
			continue
		}
		err := filepath.WalkDir(filepath.Join(root, c.Src), func(path string, d os.DirEntry, err error) error {
			name, _ := filepath.Rel(filepath.Join(root, c.Src), path)
			all[filepath.Join(c.Dst, name)] = filepath.Join(c.Src, name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A link of a page in the package leads to a file of the package.
func TestPackagedPagesLinkToPackagedFiles(t *testing.T) {
	all := shipped(t)
	pages := 0
	for at, from := range all {
		if filepath.Ext(at) != ".md" {
			continue
		}
		pages++
		list, lines := links(read(t, from))
		for i, to := range list {
			path, _, _ := strings.Cut(to, "#")
			if path != "" && all[filepath.Join(filepath.Dir(at), path)] == "" {
				t.Errorf("%s:%d: %s is not in the package", from, lines[i], to)
			}
		}
	}
	if pages < 50 {
		t.Errorf("the package has %d pages", pages)
	}
}

// Files that packaged files name in the package's documentation are there.
func TestPackagedFilesNameExistingPages(t *testing.T) {
	all := shipped(t)
	for _, file := range []string{"packaging/imbang.yaml", "packaging/copyright", "packaging/imbang.service", "packaging/imbang-vrrp.service", "packaging/imbang-proxy.service"} {
		for _, name := range regexp.MustCompile(packaged+`[\w./*-]*\w`).FindAllString(read(t, file), -1) {
			if all[name] == "" {
				t.Errorf("%s: %s is not in the package", file, name)
			}
		}
	}
}

// Links that the page makes to imbang lead to it, as the package installs it and as make install does.
func TestLinksToImbangLead(t *testing.T) {
	const page = "docs/how-to/ldirectord.md"
	made := regexp.MustCompile(`(?m)^ln -s (\S+|"[^"]*") (\S+)$`).FindAllStringSubmatch(read(t, page), -1)
	if len(made) != 2 {
		t.Fatalf("%s makes %d links", page, len(made))
	}
	for _, prefix := range []string{"usr", "usr/local"} {
		dir := t.TempDir()
		sbin := filepath.Join(dir, prefix, "sbin")
		if err := os.MkdirAll(sbin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"imbang", "imbang-ipvsadm"} {
			if err := os.WriteFile(filepath.Join(sbin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for i, m := range made {
			link := filepath.Join(dir, "usr/local/sbin", "ipvsadm"+strconv.Itoa(i))
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			make := exec.Command("/bin/sh", "-c", "ln -s "+strings.Replace(m[1], "/usr/", dir+"/usr/", 1)+" "+link)
			make.Env = []string{"PATH=" + sbin + ":" + os.Getenv("PATH")}
			if out, err := make.CombinedOutput(); err != nil {
				t.Fatalf("%s: %s", err, out)
			}
			if _, err := os.Stat(link); err != nil {
				t.Errorf("%s: %s, installed in /%s/sbin: %s", page, m[0], prefix, err)
			}
		}
	}
}
