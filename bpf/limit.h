/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How much the director sends of its own: ICMP errors and TCP resets. The source address of
 * the packet that provokes one may be forged, so all of them together are limited, as by
 * Linux's icmp_global_allow, and so are the errors to one address. A challenge (challenge.h)
 * is not limited: it is one for a SYN, and no longer than that.
 *
 * 1. An allowance is one word: the time up to which it is spent [ns]. The time since then is
 *    left, up to a bound (virtual scheduling: ITU-T I.371, annex A).
 * 2. Only an answer that is sent writes to it. In a flood each further packet reads a cache
 *    line that no CPU writes to; a sender is only looked up while an answer is left.
 * 3. Errors that path MTU discovery needs may spend more than the others, which leave
 *    ANSWER_RESERVE: no flood of other errors keeps them back.
 */
#ifndef IMBANG_LIMIT_H
#define IMBANG_LIMIT_H

#include "clock.h"
#include "counters.h"
#include "element.h"

/* 1000 a second, and 50 at once (net.ipv4.icmp_msgs_per_sec, icmp_msgs_burst). Time passes in
 * ticks of up to 10 ms and may be known two of them late: a smaller burst would waste some. */
#define ANSWER_INTERVAL (NSEC_PER_SEC / 1000)
#define ANSWER_BURST (50 * ANSWER_INTERVAL)
#define ANSWER_RESERVE ANSWER_BURST
#define ANSWER_MOST (ANSWER_BURST + ANSWER_RESERVE)

/* To one address one error a second, after six at once (net.ipv4.icmp_ratelimit and
 * inet_peer_xrlim_allow), but for path MTU discovery. */
#define SENDER_INTERVAL NSEC_PER_SEC
#define SENDER_BURST (6 * SENDER_INTERVAL)

enum answer {
	ANSWER_MTU,   /* an error that path MTU discovery needs */
	ANSWER_ERROR, /* any other error */
	ANSWER_RESET,
};

/* What an allowance has left [ns]. A CPU that knows the time late may find more spent than
 * has passed. */
static __always_inline __u64 allowance_left(__u64 spent, __u64 now, __u64 most)
{
	__s64 left = now - spent;

	if (left < 0)
		return 0;
	return (__u64)left < most ? left : most;
}

/* Spends an interval and leaves `rest` at least. 1 if that was there, and no other CPU spent
 * at the same time. */
static __always_inline int allowance_spend(struct allowance *a, __u64 now, __u64 most,
					   __u64 interval, __u64 rest)
{
	__u64 spent = *(volatile __u64 *)&a->spent;
	__u64 left = allowance_left(spent, now, most);

	if (left < interval + rest)
		return 0;
	return __sync_val_compare_and_swap(&a->spent, spent, now - left + interval) == spent;
}

static __noinline int sender_allowed(const union address *sender, __u64 now)
{
	struct allowance fresh = { .spent = now - SENDER_BURST + SENDER_INTERVAL }, *a;
	union address key = *sender;

	a = bpf_map_lookup_elem(&allowances, &key);
	if (a)
		return allowance_spend(a, now, SENDER_BURST, SENDER_INTERVAL, 0);
	(void)map_update(allowances, &key, &fresh, BPF_ANY);
	return 1;
}

static __always_inline int answer_spend(struct allowance *all, __u64 now, __u64 rest)
{
	return allowance_spend(all, now, ANSWER_MOST, ANSWER_INTERVAL, rest);
}

/* Whether the director may answer a packet's sender. If not, the packet is to be dropped, and
 * the reason is said. */
static __noinline int answer_allowed(struct packet *p, enum answer kind)
{
	__u64 now = time_coarse(), rest = kind == ANSWER_MTU ? 0 : ANSWER_RESERVE;
	struct allowance fresh = { .spent = now - ANSWER_MOST }, *all;
	__u32 reason = REASON_DROP_ANSWER_LIMIT;
	union address key = {};

	all = bpf_map_lookup_elem(&allowances, &key);
	if (!all) {
		/* One that is refused is repeated by the next packet. */
		(void)map_update(allowances, &key, &fresh, BPF_NOEXIST);
		all = bpf_map_lookup_elem(&allowances, &key);
	}
	if (all && allowance_left(all->spent, now, ANSWER_MOST) >= ANSWER_INTERVAL + rest) {
		/* Other CPUs may be first, but not for long: each of them spends. */
		if (kind == ANSWER_ERROR && !sender_allowed(&p->flow.src, now))
			reason = REASON_DROP_RATE_LIMIT;
		else if (answer_spend(all, now, rest) || answer_spend(all, now, rest) ||
			 answer_spend(all, now, rest))
			return 1;
	}
	drop(p, reason);
	return 0;
}

#endif
