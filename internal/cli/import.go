// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/migrate"
	"imbang/internal/strictyaml"
)

// mostImported is the size of a file that is read [bytes].
const mostImported = 16 << 20

// imported is what imbang import prints with --output json.
type imported struct {
	From          string         `json:"from"`
	Services      int            `json:"services"`
	Servers       int            `json:"servers"`
	Groups        int            `json:"groups"` // of addresses that move by VRRP
	Losses        []migrate.Loss `json:"losses"`
	Configuration string         `json:"configuration"`
}

func newImportCommand() *cobra.Command {
	var out command.OutputFlag
	var file, format, configID string
	var force bool
	c := &cobra.Command{
		Use:   "import {keepalived.conf|ldirectord.cf|-}",
		Short: "Write a configuration of imbang run from that of keepalived, ldirectord or ipvsadm",
		Long: `Reads virtual services, real servers and health checks from a keepalived.conf
(virtual_server blocks, with what it includes), from a ldirectord.cf, or, with -,
from what ipvsadm -Sn prints, and writes a configuration of imbang run. From
vrrp_instance, vrrp_sync_group and vrrp_script blocks of a keepalived.conf it writes
the section vrrp, for imbang vrrp, and from lvs_sync_daemon the roles of
synchronization. What each part came from is in a comment beside it.

What could not be carried over as it was is listed line by line on standard error,
with the reason and what to do, and at the end of the configuration; so is what imbang
check refuses. Of more than three lines alike the first is listed, with the number of
the others; --output json has all. imbang speaks version 3 of VRRP, and keepalived
version 2 unless it has vrrp_version 3. Nothing of the machine is changed, and
permissions are not needed.

The format is detected from the contents. --format sets it. At most
16 MiB and 200000 lines are read, with all that a keepalived.conf includes and its
sequences stand for. At most 16 MiB are written.

The exit status is 0 if everything was carried over, 1 if a configuration was written
with losses, 2 for a wrong command line, or 3 if the file cannot be read or written;
then nothing is.`,
		Example: `  imbang import /etc/keepalived/keepalived.conf -f /etc/imbang/imbang.yaml
  ipvsadm -Sn | imbang import - >imbang.yaml
  imbang import ldirectord.cf --output json | jq .losses`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"conf", "cf"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			var r *migrate.Result
			var err error
			if !until(c.Context(), func() { r, err = importFile(c.Context(), args[0], format, configID, c.InOrStdin()) }) {
				return c.Context().Err()
			}
			if err != nil {
				return err
			}
			if !until(c.Context(), func() { r.Check(refused) }) {
				return c.Context().Err()
			}
			text := r.YAML()
			if file != "" {
				mode := os.FileMode(0o644)
				if from, err := os.Stat(args[0]); err == nil { // as private as that
					mode &= from.Mode().Perm() | 0o600
				}
				if err := writeImported(file, text, mode, force); err != nil {
					return err
				}
			}
			v := imported{args[0], r.Services(), r.Servers(), r.Groups(), append([]migrate.Loss{}, r.Losses...), string(text)}
			err = out.Print(c.OutOrStdout(), v, func(w io.Writer) error {
				if file == "" {
					_, err := w.Write(text)
					return err
				}
				groups := ""
				if v.Groups > 0 {
					groups = fmt.Sprintf(", %d groups of vrrp", v.Groups)
				}
				_, err := fmt.Fprintf(w, "%s: %d services, %d servers%s\n", file, v.Services, v.Servers, groups)
				return err
			})
			if err != nil {
				return err
			}
			for _, line := range r.Listed() {
				fmt.Fprintln(c.ErrOrStderr(), line)
			}
			if v.Services+v.Groups == 0 {
				fmt.Fprintf(c.ErrOrStderr(), "%s has no virtual service\n", args[0])
			}
			if len(r.Losses) > 0 {
				return command.ErrNotAsExpected
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "write the configuration to this `FILE` in place of standard output")
	c.Flags().BoolVar(&force, "force", false, replaces)
	c.Flags().StringVar(&format, "format", "", "format of the input: keepalived, ldirectord or ipvsadm; default by its contents")
	c.Flags().StringVar(&configID, "config-id", "", "`ID` of the machine that lines of keepalived.conf with @ are for, as keepalived --config-id; without it they are left out")
	_ = c.RegisterFlagCompletionFunc("config-id", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]cobra.Completion{"keepalived", "ldirectord", "ipvsadm"}, cobra.ShellCompDirectiveNoFileComp))
	out.Register(c, command.One[imported](""))
	return c
}

func importFile(ctx context.Context, name, format, configID string, stdin io.Reader) (*migrate.Result, error) {
	in := stdin
	if name != "-" {
		f, err := openRegular(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, mostImported+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > mostImported {
		return nil, fmt.Errorf("%s: longer than %d MiB: this is no such configuration", name, mostImported>>20)
	}
	if format == "" {
		format = cmp.Or(migrate.Format(text), map[string]string{"keepalived.conf": "keepalived", "ldirectord.cf": "ldirectord"}[filepath.Base(name)])
	}
	if configID != "" && format != "keepalived" {
		return nil, command.Usage(errors.New("--config-id is for keepalived.conf only: remove it"))
	}
	return importText(ctx, name, format, configID, text)
}

func importText(ctx context.Context, name, format, configID string, text []byte) (*migrate.Result, error) {
	switch format {
	case "keepalived":
		base, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		return migrate.Keepalived(ctx, name, text, migrate.Source{Dir: filepath.Dir(name), Base: base, Files: migrate.ReadFiles, Program: check.FindProgram, User: check.HasUser, ConfigID: configID})
	case "ldirectord":
		return migrate.Ldirectord(ctx, name, text, migrate.Names{
			Host: func(name string, six bool) (netip.Addr, error) { return lookupHost(ctx, name, six) }, Port: net.LookupPort,
		})
	case "ipvsadm":
		return migrate.Ipvsadm(name, text)
	case "":
		if bytes.HasPrefix(text, []byte("#!")) {
			return nil, fmt.Errorf("%s is a script: import what ipvsadm -Sn prints after it has run, on a machine with ip_vs", name)
		}
		return nil, fmt.Errorf("%s has neither virtual_server nor vrrp_instance blocks, nor virtual= lines, nor lines of ipvsadm -Sn: say what it is with --format", name)
	}
	return nil, command.Usage(fmt.Errorf("--format %s: want keepalived, ldirectord or ipvsadm", format))
}

// openRegular opens a file that is no directory, device or FIFO: one could be read for ever.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: want - to read from a pipe", name)
	}
	return os.Open(name)
}

// until waits for a function, or for the end of the context: a reader such as a terminal
// may never end, and a pattern such as /*/*/*/* has many matches. Then it reports false, and
// what the function makes is not to be read.
func until(ctx context.Context, work func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); work() }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// refused is what imbang check would say of a configuration.
func refused(text []byte) (list []migrate.Mistake) {
	if len(text) > config.MaxFile {
		return []migrate.Mistake{{Key: "the configuration", Text: fmt.Sprintf("larger than %d KiB: split it, and include the parts", config.MaxFile>>10)}}
	}
	_, err := config.Parse("imbang.yaml", text)
	var mistakes config.Mistakes
	if err != nil && !errors.As(err, &mistakes) {
		mistakes = config.Mistakes{err}
	}
	for _, m := range mistakes {
		var at *strictyaml.Mistake
		if errors.As(m, &at) {
			list = append(list, migrate.Mistake{Line: at.Line, Key: at.Path, Text: at.Text})
			continue
		}
		list = append(list, migrate.Mistake{Key: "the configuration", Text: m.Error()})
	}
	return list
}

func lookupHost(ctx context.Context, name string, six bool) (netip.Addr, error) {
	network := map[bool]string{false: "ip4", true: "ip6"}[six]
	all, err := net.DefaultResolver.LookupNetIP(ctx, network, name)
	if err != nil || len(all) == 0 {
		return netip.Addr{}, errors.Join(err, errors.New("no address"))
	}
	return all[0].Unmap(), nil
}
