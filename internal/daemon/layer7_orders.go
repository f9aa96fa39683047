// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/operator"
)

// followed is what HAProxy is to have done before an order's reply: afterwards no request of a new
// session goes to a server that is drained.
type followed struct {
	keeper  *carry.Keeper
	number  uint64
	dir     string
	servers []l7.ServerID
}

// followTime is how long a reply waits for HAProxy.
const followTime = 15 * time.Second

// followed is of the servers of backends in a reply. It is called by the loop.
func (d *Daemon) followed(reply *api.OrderReply) (f followed) {
	if d.layer7.keeper == nil {
		return f
	}
	for _, t := range reply.Servers {
		if id, err := operator.ParseServiceID(t.Key); err == nil && id.Backend != "" {
			f.servers = append(f.servers, l7.ServerID{Backend: id.Backend, Server: t.Server})
		}
	}
	f.keeper, f.number, f.dir = d.layer7.keeper, d.layer7.number, d.layer7.dir
	return f
}

// await waits until HAProxy has followed, and says what is still bound to servers that get nothing
// new. It is not called by the loop.
func (f followed) await(reply *api.OrderReply) {
	if len(f.servers) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	if err := f.keeper.Wait(ctx, f.number); err != nil {
		reply.Warnings = append(reply.Warnings, notFollowed(err))
		return
	}
	master := &runtime.Master{Client: runtime.Client{Path: supervise.MasterSocket(f.dir)}}
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
