// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/operator"
)

// followed is what HAProxy is to have done before a reply: afterwards no request of a new session
// goes to a server that is drained or removed.
type followed struct {
	keeper  *carry.Keeper
	number  uint64
	dir     string
	servers []l7.ServerID
	out     bool          // the servers are to get nothing new
	request time.Duration // the longest timeout of requests
}

// followTime is how long a reply waits for HAProxy, and oldTime for processes of earlier
// configurations.
const (
	followTime = 15 * time.Second
	oldTime    = 15 * time.Second
)

// following is what HAProxy was told last. It is called by the loop.
func (d *Daemon) following() followed {
	return followed{keeper: d.layer7.keeper, number: d.layer7.number, dir: d.layer7.dir}
}

// warnings waits until HAProxy has followed a configuration. It is not called by the loop.
func (f followed) warnings(kept string) []string {
	if err := f.wait(); err != nil {
		return []string{notFollowed(kept, err)}
	}
	return nil
}

// ordered waits until HAProxy has followed an order, which it also does while it does not accept the
// configuration: the alarm says that. It is not called by the loop.
func (f followed) ordered() []string {
	if err := f.wait(); err != nil && !errors.As(err, new(*carry.Former)) {
		return []string{notFollowed(orderKept, err)}
	}
	return nil
}

func (f followed) wait() error {
	if f.keeper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	return f.keeper.Wait(ctx, f.number)
}

// followed is of the servers of backends in a reply. It is called by the loop.
func (d *Daemon) followed(action string, reply *api.OrderReply) (f followed) {
	if d.layer7.keeper == nil {
		return f
	}
	f = d.following()
	f.out = action == api.ActionDrain || action == api.ActionMaintenance
	for _, l := range d.layer7.wanted.Config.Listeners {
		f.request = max(f.request, cmp.Or(l.Timeouts.Request, haproxy.Defaults.Request))
	}
	for _, t := range reply.Servers {
		if id, err := operator.ParseServiceID(t.Key); err == nil && id.Backend != "" {
			f.servers = append(f.servers, l7.ServerID{Backend: id.Backend, Server: t.Server})
		}
	}
	return f
}

// await waits until HAProxy has followed, and says what is still bound to servers that get nothing
// new. It is not called by the loop.
func (f followed) await(reply *api.OrderReply) {
	if len(f.servers) == 0 {
		return
	}
	if warnings := f.ordered(); len(warnings) > 0 {
		reply.Warnings = append(reply.Warnings, warnings...)
		return
	}
	master := &runtime.Master{Client: runtime.Client{Path: supervise.MasterSocket(f.dir)}}
	if f.out {
		f.awaitOld(master, reply)
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	streams, err := master.Streams(ctx, f.servers...)
	if err != nil {
		return // it has ended with them
	}
	for _, s := range streams {
		reply.Streams = append(reply.Streams, api.Stream{
			Service: operator.ServiceID{Backend: s.Server.Backend}.String(), Server: s.Server.Server, Client: s.Client, Age: s.Age,
		})
	}
}

// awaitOld waits for processes of earlier configurations, if HAProxy has reloaded just before.
func (f followed) awaitOld(master *runtime.Master, reply *api.OrderReply) {
	ctx, cancel := context.WithTimeout(context.Background(), oldTime)
	defer cancel()
	if left, err := master.AwaitOld(ctx, f.request); err == nil && len(left) > 0 {
		reply.Warnings = append(reply.Warnings, fmt.Sprintf("connections that clients opened before HAProxy's last reload may still send a request to it, for %v at most: process %s",
			f.request-oldTime, strings.Trim(fmt.Sprint(left), "[]")))
	}
}
