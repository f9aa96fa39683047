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

// followed is what HAProxy is to have done before a reply: afterwards no request of a new session
// goes to a server that is drained or removed.
type followed struct {
	keeper  *carry.Keeper
	number  uint64
	dir     string
	servers []l7.ServerID
}

// followTime is how long a reply waits for HAProxy.
const followTime = 15 * time.Second

// following is what HAProxy was told last. It is called by the loop.
func (d *Daemon) following() followed {
	return followed{keeper: d.layer7.keeper, number: d.layer7.number, dir: d.layer7.dir}
}

// warnings waits until HAProxy has followed. It is not called by the loop.
func (f followed) warnings(kept string) []string {
	if f.keeper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	if err := f.keeper.Wait(ctx, f.number); err != nil {
		return []string{notFollowed(kept, err)}
	}
	return nil
}

// followed is of the servers of backends in a reply. It is called by the loop.
func (d *Daemon) followed(reply *api.OrderReply) (f followed) {
	if d.layer7.keeper == nil {
		return f
	}
	f = d.following()
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
	if warnings := f.warnings(orderKept); len(warnings) > 0 {
		reply.Warnings = append(reply.Warnings, warnings...)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
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
