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
#include "maps.h"

/* In place of a call's number: all are in use. */
#define NO_CALL_NUMBER 0xffffffffU

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

/* Packets of the call do not find the template any more. */
static __noinline int call_unlink(__u32 number)
{
	struct call *call = bpf_map_lookup_elem(&call_numbers, &number);
	__u32 *now = call ? bpf_map_lookup_elem(&calls, call) : 0;

	/* It may be another one's by now. */
	if (now && *now == number)
		bpf_map_delete_elem(&calls, call);
	return 0;
}

/* A template left the table. */
static __always_inline void call_forget(const struct flow *key)
{
	__u32 number = call_number(key);

	call_unlink(number);
	bpf_map_delete_elem(&call_numbers, &number);
}

#endif
