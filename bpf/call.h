/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls: what the templates of the SIP engine stand for. A Call-ID is too long
 * for the keys of the connection table, so a call has a number there, as long as
 * its template is in the table. `calls` leads from the call to the number,
 * unless the template is invalid; `call_numbers` leads back.
 */
#ifndef IMBANG_CALL_H
#define IMBANG_CALL_H

#include "address.h"
#include "element.h"
#include "maps.h"

/* Whether a key of the connection table is that of a call's template. */
static __always_inline int is_call(const struct flow *key)
{
	return key->template && key->protocol == CALL_PROTOCOL;
}

/* The key of a call's template. */
static __always_inline void call_flow(__u32 number, __u8 family, struct flow *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	address_from4(&key->src, number);
	address_from4(&key->dst, 0);
	key->protocol = CALL_PROTOCOL;
	key->template = 1;
	key->family = family;
}

static __always_inline __u32 call_number(const struct flow *key)
{
	return address_to4(&key->src);
}

/* Packets of the call do not find the template any more: 0, or an error. */
static __noinline long call_unlink(const struct flow *key)
{
	__u32 number = call_number(key);
	struct call *call = bpf_map_lookup_elem(&call_numbers, &number);
	__u32 *now = call ? bpf_map_lookup_elem(&calls, call) : 0;

	/* It may be another one's by now. */
	return now && *now == number ? map_delete(calls, call) : 0;
}

/* Deletes what leads to the template of a call, and back: 0, or an error. */
static __noinline long call_forget(const struct flow *key)
{
	__u32 number = call_number(key);
	struct call *call = bpf_map_lookup_elem(&call_numbers, &number);
	long rc;

	/* Of the other family, a template that was first with the number has it. */
	if (!call || call->clients.family != key->family)
		return 0;
	rc = call_unlink(key);
	return rc ? rc : map_delete(call_numbers, &number);
}

#endif
