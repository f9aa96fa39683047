/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Persistence templates: entries of the connection table that stand for the
 * clients of a network. A template controls the connections that it made, and
 * lives while they do (ip_vs_ct_in_get, ip_vs_control_add).
 *
 * Its number of connections changes under its lock, with the key compared, as all
 * of an entry does. A connection is counted before it is inserted, and each template
 * that a connection is counted at stays until that is over. Each template in
 * the table, set aside or not, counts once in its server's `persistent`.
 */
#ifndef IMBANG_TEMPLATE_H
#define IMBANG_TEMPLATE_H

#include "call.h"
#include "conn.h"
#include "flow.h"
#include "follow.h"
#include "hook.h"
#include "settings.h"

/* The port of a template that may no longer be used. */
#define TEMPLATE_INVALID 0xffff

/* The key of a template set aside: the server's id (of which there are fewer
 * than 2^24) is in what a template has no use for, so that those of several
 * servers lie side by side. */
static __always_inline void template_set_aside(struct flow *key, __u32 server)
{
	key->dport = TEMPLATE_INVALID;
	key->sport = server;
	key->pad = server >> 16;
}

/* The network of an address under struct service's netmask. */
static __always_inline void address_mask(const union address *a, __u8 family, __be32 netmask,
					 union address *network)
{
	__s32 bits = netmask; /* IPv6: a prefix's length */

	if (family == AF_INET) {
		address_from4(network, address_to4(a) & netmask);
		return;
	}
	network->word[0] = a->word[0] & prefix_word(bits);
	network->word[1] = a->word[1] & prefix_word(bits - 32);
	network->word[2] = a->word[2] & prefix_word(bits - 64);
	network->word[3] = a->word[3] & prefix_word(bits - 96);
}

/* The key of the template that controls a flow. */
static __always_inline void template_flow(const struct flow *flow, __u32 kind, __be32 netmask,
					  __u32 fwmark, struct flow *t)
{
	__builtin_memset(t, 0, sizeof(*t));
	address_mask(&flow->src, flow->family, netmask, &t->src);
	t->template = 1;
	t->family = flow->family;
	if (kind == TEMPLATE_MARK) {
		if (flow->family == AF_INET)
			address_from4(&t->dst, bpf_htonl(fwmark));
		else
			t->dst.word[0] = bpf_htonl(fwmark);
		return;
	}
	t->protocol = flow->protocol;
	t->dst = flow->dst;
	if (kind == TEMPLATE_PORT)
		t->dport = flow->dport;
}

/* What controls a connection: the fields of struct conn that tell. */
struct control {
	__u32 kind; /* enum template_kind */
	__be32 netmask;
	__u32 fwmark;
	__u32 server;
};

static __always_inline struct control control_of(const struct conn *c)
{
	struct control control = {
		.kind = c->template,
		.netmask = c->netmask,
		.fwmark = c->fwmark,
		.server = c->server,
	};

	return control;
}

/* The key of that template, while it is valid. */
static __always_inline void control_key(const struct flow *flow, const struct control *control,
					struct flow *key)
{
	if (control->kind == TEMPLATE_CALL)
		call_flow(control->fwmark, flow->family, key);
	else
		template_flow(flow, control->kind, control->netmask, control->fwmark, key);
}

/* The template that controls a connection: the valid one, if it is of the
 * connection's server, else the one that was made invalid. 0 if there is none. */
static __always_inline int template_of(const struct flow *flow, const struct control *control,
				       struct flow *key, struct conn *seen)
{
	control_key(flow, control, key);
	if (conn_look(key, seen) && seen->server == control->server)
		return 1;
	if (control->kind == TEMPLATE_CALL)
		return 0;
	template_set_aside(key, control->server);
	return !!conn_look(key, seen);
}

static __always_inline void template_counted(__u32 server, __s32 n)
{
	struct load *l = load_far(server);

	if (l)
		__sync_fetch_and_add(&l->persistent, n);
}

/* A connection ends, or came to nothing: its template loses it. */
__noinline int template_release(const struct flow *flow, const struct control *control)
{
	struct flow key;
	__u32 server;

	if (!flow || !control)
		return 0;
	server = control->server;
	control_key(flow, control, &key);
	if (conn_hold(&key, &server, -1) || control->kind == TEMPLATE_CALL)
		return 0;
	HOOK(TEMPLATE_RELEASE);
	template_set_aside(&key, control->server);
	conn_hold(&key, &server, -1);
	return 0;
}

static __always_inline void conn_release(const struct flow *flow, const struct conn *c)
{
	struct control control;

	if (!c->template)
		return;
	control = control_of(c);
	template_release(flow, &control);
}

__noinline int template_assure(const struct flow *flow, const struct control *control)
{
	struct flow key;

	if (!flow || !control)
		return 0;
	control_key(flow, control, &key);
	if (conn_mark(&key, control->server, MARK_REAL) || control->kind == TEMPLATE_CALL)
		return 0;
	template_set_aside(&key, control->server);
	conn_mark(&key, control->server, MARK_REAL);
	return 0;
}

static __always_inline void conn_assure(const struct flow *flow, const struct conn *c)
{
	struct control control;

	if (!c->template)
		return;
	control = control_of(c);
	template_assure(flow, &control);
}

#endif
