// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/distribution"
	"imbang/internal/lab/serve"
)

// newStation makes a server of a stated capacity; a test listens in.
var newStation = serve.NewStation

// newServeCommand is what the lab starts in the namespaces of its built-in
// real servers. It is hidden: nobody types it.
func newServeCommand() *cobra.Command {
	var (
		name, listen, header, database, distributed string
		c                                           serve.Capacity
	)
	cmd := &cobra.Command{
		Use: "serve", Short: "Be one of the lab's real servers", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			if database != "" {
				s, err := serve.NewApplication(ctx, database)
				if err != nil {
					return err
				}
				return serve.Run(ctx, s, listen, header, name, cmd.InOrStdin())
			}
			var err error
			if c.Distribution, err = distribution.Parse(distributed); err != nil {
				return command.Usage(err)
			}
			if c.Concurrency < 1 || c.Backlog < 0 || !(c.Speed > 0) || c.Service <= 0 || c.Page < 0 || c.Hashes < 0 {
				return command.Usage(fmt.Errorf("concurrency, speed and service must be above 0, backlog, page and hashes not below"))
			}
			return serve.Run(ctx, newStation(c), listen, header, name, cmd.InOrStdin())
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "its name in replies")
	f.StringVar(&listen, "listen", ":80", "address and port")
	f.StringVar(&header, "header", "X-Server", "reply header that carries the name")
	f.StringVar(&database, "database", "", "be the application with this database file")
	f.StringVar(&distributed, "law", string(distribution.Constant), "distribution of service times")
	f.DurationVar(&c.Service, "service", time.Millisecond, "mean time of a request")
	f.IntVar(&c.Concurrency, "concurrency", 1, "requests served at a time")
	f.IntVar(&c.Backlog, "backlog", 0, "requests that may wait; 0: any number")
	f.Float64Var(&c.Speed, "speed", 1, "requests are served this many times as fast")
	f.IntVar(&c.Page, "page", 1, "bytes of a reply")
	f.IntVar(&c.Hashes, "hashes", 0, "SHA-256 hashes of 1 KB that a request costs")
	f.Uint64Var(&c.Seed, "seed", 1, "seed of service times")
	return cmd
}
