// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/place"
)

func newProxyCommand() *cobra.Command {
	var file, format, state string
	var grace time.Duration
	c := &cobra.Command{
		Use:   "proxy [-c FILE]",
		Short: "Run HAProxy for the listeners of the configuration",
		Long: `Runs HAProxy for the sections listeners, backends and proxy of the configuration, in a
process of its own: imbang run may be restarted, killed and upgraded meanwhile, and so
may this one. It runs in the foreground until SIGINT or SIGTERM.

imbang run decides what HAProxy does: it renders the configuration with the verdicts of
its checks and the operators' orders, changes servers, weights and certificates by
HAProxy's socket, and has it reload where there is no command for a change. Before
imbang run has been there, HAProxy is started with all servers up. Until the next boot
HAProxy is then started with what imbang run rendered last, and not with FILE.

If HAProxy ends it is started again within a second, with the verdicts of the last
rendering. This process holds its listening sockets meanwhile, so that new connections
wait, for 5 s at most. If this process is killed HAProxy goes on, and the next one takes
it over. While imbang run is not there for longer than proxy.fallback, HAProxy checks
the servers itself.

Of certificates, authorities and pages, HAProxy reads copies of the last good ones, which
imbang run keeps in --state for the next boot. A file that never was good keeps only what
needs it from being served: a listener without another certificate is left out.

Access logs are written to the files that the configuration names. A file that was
renamed is made again within a second: logrotate needs no command for that.

SIGHUP has HAProxy load the rendered configuration again. SIGUSR2 executes the program
again, as after an upgrade of the package, without touching HAProxy. After SIGTERM
HAProxy accepts no connections, and has --grace for those that are open.

Requires root, and the package haproxy (2.6 or later). The exit status is 0 after a
signal or if the configuration has no listeners, 2 for a wrong command line, or 3 if it
failed.`,
		Example: `  imbang proxy
  imbang proxy -c /etc/imbang/imbang.yaml --log json
  imbang proxy status`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := unitLogger(format, c.ErrOrStderr())
			if err != nil {
				return command.Usage(err)
			}
			if grace < 0 {
				return command.Usage(fmt.Errorf("--grace %s: want 0 or more", grace))
			}
			return runProxy(c.Context(), file, state, grace, log)
		},
	}
	registerConfig(c, &file)
	c.Flags().StringVar(&state, "state", place.State, "`DIRECTORY` in which imbang run keeps the last good copies of files")
	_ = c.MarkFlagDirname("state")
	c.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long open connections may go on after SIGTERM")
	registerLog(c, &format)
	c.AddCommand(newProxyStatusCommand(), newProxyDrainCommand(), newProxyEnableCommand())
	return c
}

func runProxy(ctx context.Context, file, state string, grace time.Duration, log *slog.Logger) error {
	// Now, as the file of an upgrade may have taken its place later.
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	dir, err := place.ProxyDir()
	if err != nil {
		return err
	}
	supervise.SweepChecks(dir, time.Now())
	o := supervise.Options{Dir: dir, Config: file, Log: log, Grace: max(grace, time.Millisecond)}
	if supervise.Published(dir) == "" {
		c, err := config.Load(file)
		if err != nil {
			return err
		}
		if c.Layer7 == nil {
			log.Info(file + " has no listeners: there is nothing to run")
			daemon.Ready() // an end before that is a failure, after which systemd starts the service again
			return nil
		}
		o.Fallback = c.Layer7.Engine.Fallback
		o.Render = func(ctx context.Context) error { return carry.First(ctx, dir, state, "", &c.Layer7.Config, log) }
	}
	reload, replace := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(replace, syscall.SIGUSR2)
	o.Reload, o.Replace = reload, replace
	o.Ready = func() {
		daemon.Ready()
		go place.SweepProxy() // now that the own directory is locked
	}
	o.Execute = func() error {
		// Signals that are ignored stay so until the next program handles them.
		signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2)
		err := syscall.Exec(program, os.Args, os.Environ())
		signal.Notify(reload, syscall.SIGHUP)
		signal.Notify(replace, syscall.SIGUSR2)
		return fmt.Errorf("execute %s: %w", program, err)
	}
	return supervise.Run(ctx, o)
}

func newProxyDrainCommand() *cobra.Command {
	var out command.OutputFlag
	q := api.NodeRequest{Drain: true}
	var deadline time.Duration
	c := &cobra.Command{
		Use:   "drain",
		Short: "Have no new clients come to this node, and those that are here leave",
		Long: `Has the monitors of all listeners fail, so that a director in front of this node sends
no new clients once its checks have seen that; and connections end with their next
reply: of HTTP/1 by "Connection: close", of HTTP/2 by GOAWAY. What goes on, such as
WebSockets, goes on until --deadline. imbang status shows the connections that remain.

Requests that come all the same are answered. The order survives restarts of the daemon
and of the machine. imbang proxy enable ends it.

Requires root or membership of group imbang, and imbang run. The exit status is 0, 2 for
a wrong command line, or 3 if it failed; then nothing is ordered.`,
		Example: `  imbang proxy drain --reason "kernel upgrade" --deadline 10m
  imbang proxy enable`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if deadline < 0 {
				return command.Usage(fmt.Errorf("--deadline %s: want a time above 0, or 0 for never", deadline))
			}
			q.Deadline = deadline.Seconds()
			return orderNode(c, out, q, "this node is draining")
		},
	}
	c.Flags().DurationVar(&deadline, "deadline", 0, "end connections that remain after this `TIME`; 0: never")
	c.Flags().StringVar(&q.Reason, "reason", "", "`TEXT` for imbang status and the log")
	out.Register(c, command.One[api.NodeReply](""))
	return c
}

func newProxyEnableCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "enable",
		Short: "Have clients come to this node again",
		Long: `Ends imbang proxy drain.

Requires root or membership of group imbang, and imbang run. The exit status is 0, 2 for
a wrong command line, or 3 if it failed; then everything is as it was.`,
		Example:           `  imbang proxy enable`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return orderNode(c, out, api.NodeRequest{}, "this node is enabled")
		},
	}
	out.Register(c, command.One[api.NodeReply](""))
	return c
}

func orderNode(c *cobra.Command, out command.OutputFlag, q api.NodeRequest, done string) error {
	if err := out.Check(); err != nil {
		return err
	}
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	reply, err := d.OrderNode(c.Context(), q)
	if err != nil {
		return err
	}
	return out.Print(c.OutOrStdout(), reply, func(w io.Writer) error {
		fmt.Fprintln(w, done)
		for _, warning := range reply.Warnings {
			fmt.Fprintf(c.ErrOrStderr(), "imbang: warning: %s\n", warning)
		}
		return nil
	})
}

func newProxyStatusCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what HAProxy does, and how it was started",
		Long: `Prints what the process imbang proxy of this network namespace says of HAProxy: its
version, processes, starts and reloads, and why a configuration was not accepted. What
is known of listeners, backends and servers is in imbang status.

Requires root. The exit status is 0, 2 for a wrong command line, or 3 if it failed: the
process does not run.`,
		Example: `  imbang proxy status
  imbang proxy status --output json | jq .workers`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			dir, err := place.ProxyDir()
			if err != nil {
				return err
			}
			s, err := supervise.Ask(c.Context(), dir, supervise.DoStatus)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), s, func(w io.Writer) error { return printProxy(w, s, time.Now()) })
		},
	}
	out.Register(c, command.One[supervise.Status](""))
	return c
}

func printProxy(w io.Writer, s supervise.Status, now time.Time) error {
	fmt.Fprintf(w, "process %d since %s, HAProxy %s\n", s.Supervisor, clock(s.Since.Local()), s.Phase)
	if s.HAProxy != 0 {
		fmt.Fprintf(w, "HAProxy %s, process %d with workers %s", s.Version, s.HAProxy, numbers(s.Workers))
		if !s.Started.IsZero() {
			fmt.Fprintf(w, ", started %s ago", ago(now, s.Started))
		}
		fmt.Fprintln(w)
	}
	if len(s.Old) > 0 {
		fmt.Fprintf(w, "workers of earlier configurations at the last reload: %s\n", numbers(s.Old))
	}
	fmt.Fprintf(w, "%s loaded; %d starts, %d reloads, %d failed reloads\n", s.Configuration, s.Starts, s.Reloads, s.Failed)
	if s.Refused != "" {
		fmt.Fprintf(w, "REFUSED  %s: %s\n", s.Refused, s.Reason)
	}
	if s.LastEnd != "" {
		fmt.Fprintf(w, "last end: %s\n", s.LastEnd)
	}
	return nil
}

func numbers(list []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), ", ")
}
