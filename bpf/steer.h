/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Health checks of the director's own that go the way of the traffic. A socket
 * connects to a server's own address, so that the stack has the route and the
 * neighbour; on the way out the packets get the virtual address, and the server's
 * tunnel, and the replies come back to the stack as the server's. User space
 * registers each socket in `check_flows`, in both directions, before it connects. An
 * entry has all that a packet is sent by: a server that was removed is checked, too.
 */
#ifndef IMBANG_STEER_H
#define IMBANG_STEER_H

#include "clock.h"
#include "counters.h"
#include "flow.h"
#include "forward/nat.h"
#include "forward/tun.h"
#include "maps.h"
#include "settings.h"

/* A registered flow that is still of use; NULL if there is none. */
static __noinline struct check_flow *check_of(const struct flow *flow)
{
	struct flow key = *flow;
	struct check_flow *c = bpf_map_lookup_elem(&check_flows, &key);

	return c && c->until > now_coarse_ns() ? c : 0;
}

static __always_inline int may_be_steered(const struct packet *p, const struct settings *set)
{
	return set->steering && p->flow.protocol == IPPROTO_TCP && p->part == WHOLE;
}

/* Whether a packet that comes in is of a check: a reply, or the check's own that a server
 * without the virtual address has forwarded. */
static __noinline int of_a_check(const struct packet *p, const struct settings *set)
{
	struct flow back;

	if (!may_be_steered(p, set))
		return 0;
	flow_turn(&p->flow, &back);
	return check_of(&p->flow) || check_of(&back);
}

/* A check's packet, by the tunnel of its server: a verdict, or REFUSED. */
__noinline int steer_tunnel(struct __sk_buff *skb, struct packet *p, const struct server *s)
{
	return p && s ? tunnel_to(skb, p, s) : VERDICT_DROP;
}

/* A packet of the director's own: a verdict, or UNDECIDED if it is of no check. */
__noinline int steer_out(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	struct check_flow *c;
	int verdict;

	if (!p || !may_be_steered(p, set))
		return UNDECIDED;
	c = check_of(&p->flow);
	if (!c || c->reply)
		return UNDECIDED;
	/* The element is another flow's by now: this one has ended. */
	if (!address_equal(&c->server.addr, &p->flow.dst))
		return VERDICT_DROP;
	if (c->server.forward != FORWARD_ROUTE && c->server.forward != FORWARD_TUNNEL)
		return UNDECIDED;
	c->seen = 1;
	p->forward = c->server.forward;
	p->to = c->addr;
	p->port = c->port;
	if (nat_side_far(skb, p, NAT_DESTINATION, &p->to, p->port))
		return VERDICT_DROP;
	if (p->forward == FORWARD_ROUTE)
		return VERDICT_PASS;
	p->flow.dst = p->to;
	p->flow.dport = p->port;
	p->dont_fragment = 1; /* so that it is not to be cut here */
	verdict = steer_tunnel(skb, p, &c->server);
	return verdict == VERDICT_REDIRECT ? verdict : VERDICT_DROP;
}

/* A packet that comes in and is of no connection: a verdict, or UNDECIDED. */
__noinline int steer_in(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	struct check_flow *c;
	struct flow back;

	if (!p || p->peek || !may_be_steered(p, set))
		return UNDECIDED;
	c = check_of(&p->flow);
	if (c && c->reply) {
		p->to = c->addr;
		p->port = c->port;
		return nat_side_far(skb, p, NAT_SOURCE, &p->to, p->port) ? VERDICT_DROP
									 : VERDICT_PASS;
	}
	/* It must not be balanced as a client's: another server would answer the check. */
	flow_turn(&p->flow, &back);
	c = check_of(&back);
	return c && c->reply ? drop(p, REASON_DROP_CHECK_RETURNED) : UNDECIDED;
}

#endif
