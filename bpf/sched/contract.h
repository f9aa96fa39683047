/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contract of a scheduler, after struct ip_vs_scheduler of Linux:
 *
 *   __u32 NAME_pick(struct pick *p)          a server id, NO_SERVER, STALE_CHOICE
 *   void  NAME_changed(struct change *c)     keep its memory true, or say in
 *                                            c->error why not; without one:
 *                                            #define NAME_changed unchanging
 *   #define NAME_tree(count)                 by whose cost its services of so
 *                                            many servers have a tree
 *                                            (sched/tree.h), or SCHED_NONE
 *
 * or, if it always takes the server that costs least,
 *
 *   struct cost NAME_cost(__s32 weight, const struct load *l)
 *
 * for which there is a tree that finds it among many.
 *
 * What it remembers of a service belongs to p->incarnation: another scheduler
 * of the service, or another service with the same id, has another one. A packet
 * that was under way when the scheduler changed must not write into what a later
 * incarnation reads: memory in words has the incarnation in the word that
 * compare-and-swap moves, entries of tables have it in their keys.
 *
 * It never chooses p->without (which reads as no server by server_id_nth and
 * candidate), and with p->peek it changes nothing.
 *
 * A scheduler is one header under sched/, which may have maps, too, and its line
 * in sched/list.h; ARCHITECTURE.md walks through the places. The same code runs
 * for packets, for table edits (the table_changed program) and under
 * BPF_PROG_TEST_RUN.
 *
 * A visit (a callback of bpf_loop) must not ask whether it is the first one:
 * verifiers before Linux 6.7 walk it with what it is given at first only, and
 * take out what is then never reached. "If there is none yet" would always
 * hold.
 *
 * A visit must not compare a value that the verifier knows something of: before
 * Linux 6.8 it may walk the visit with the value of one caller, or of one branch
 * of the caller, and take out what the other values need. What it reads from a
 * table is unknown; for a constant or what was compared before there is
 * store_unknown. A test finds code that is lost in either way.
 */
#ifndef IMBANG_SCHED_CONTRACT_H
#define IMBANG_SCHED_CONTRACT_H

#include "../address.h"
#include "../by_id.h"
#include "../clock.h"
#include "../element.h"
#include "../hook.h"
#include "../maps.h"
#include "../rng.h"

/* Stores a value for a visit, on the stack, and makes the verifier forget what
 * it knows of the value. */
#define store_unknown(place, value) ((void)__sync_lock_test_and_set(place, value))

/* No choice, as a change overtook the packet: the scheduler's memory is gone, or the
 * service has lost the server. The packet is dropped, and the client sends it again. */
#define STALE_CHOICE 0xfffffffeU

/* No choice, as there is no room for a template, or one is being removed. */
#define NO_ROOM 0xfffffffcU

/* In pick->without: every server that has a ramp (ramp.h). */
#define WITHOUT_RAMPING 0xfffffffdU

/* What a scheduler may look at to choose. Not a key of a table as it lies
 * here: Linux 6.1 requires keys on the program's own stack or in a table. */
struct pick {
	__u32 service; /* id */
	__u32 incarnation;
	__u32 first; /* the servers: order[first .. first + count - 1] */
	__u32 count;
	__u32 flags; /* enum service_flag */
	union address src;
	union address dst;
	__be16 sport;
	__u8 family;
	__u8 protocol;
	__u8 peek;     /* only to know: whatever remembers stays as it is */
	__u8 fallback; /* of hash tables: go on to the next server that can */
	__u32 without; /* choose as if this server could take nothing */
};

/* NAME_changed of a scheduler that remembers nothing of the list. */
static __always_inline void unchanging(struct change *c)
{
}

/* The id of the server at a position in order of addition. */
static __always_inline __u32 server_id_at(__u32 first, __u32 position)
{
	__u32 slot = first + position;
	__u32 *id = order_at(slot);

	return id ? *id : NO_SERVER;
}

/* The part of its service's new connections that a server with a ramp may take
 * [2^-16]; WHOLE_PART or more: all that its scheduler gives it. It grows with the time,
 * from nothing, through the server's fair share at the end of its slow start, and on. */
static __always_inline __u64 ramp_part(__u32 id)
{
	struct server *s = server_of(id);
	__u64 length, age, share = WHOLE_PART, now;
	struct fair_sum *of;
	__u32 service;

	if (!s || !s->ramp_since || !s->slow_start || s->weight <= 0)
		return WHOLE_PART;
	service = s->service;
	of = fair_sum_of(service);
	if (!of || !of->sum)
		return WHOLE_PART;
	if (of->fair == FAIR_WEIGHT)
		share = (__u64)s->weight * WHOLE_PART / of->sum;
	else if (of->fair == FAIR_NUMBER)
		share = WHOLE_PART / of->sum;
	now = now_coarse_ns();
	age = now > s->ramp_since ? (now - s->ramp_since) >> 10 : 0;
	length = (s->slow_start * 1000000ULL) >> 10;
	/* The age is bounded, so that nothing overflows: 2^16 times the slow start. */
	if (!length || age >> PART_SHIFT >= length)
		return WHOLE_PART;
	return age * share / length;
}

/* Whether it is less than what the scheduler gives it. Global, so that the verifier walks it
 * once. */
__noinline int ramping(__u32 id)
{
	return ramp_part(id) < WHOLE_PART;
}

/* A server's id, or NO_SERVER if the choice is made without it. */
static __always_inline __u32 candidate(const struct pick *p, __u32 id)
{
	if (id == p->without)
		return NO_SERVER;
	return p->without == WITHOUT_RAMPING && ramping(id) ? NO_SERVER : id;
}

/* The i-th server of Linux's list: the latest added is the first. */
static __always_inline __u32 server_id_nth(const struct pick *p, __u32 i)
{
	return candidate(p, server_id_at(p->first, p->count - 1 - i));
}

/* Whether a server is in a service's list. Ids of services and of servers are not
 * reused while a packet is under way that knows them (struct quarantine). */
static __always_inline int serves(const struct server *s, __u32 service)
{
	return s->flags & SERVER_AVAILABLE && s->service == service;
}

/* Without a table of a hashing scheduler: a service that has servers has one, unless
 * another scheduler was chosen or the service deleted meanwhile. */
static __always_inline __u32 table_missing(const struct pick *p)
{
	return p->count ? STALE_CHOICE : NO_SERVER;
}

/* ip_vs_dest_conn_overhead: an active connection weighs 256 inactive ones. */
static __always_inline __s64 overhead(const struct load *l)
{
	return ((__s64)l->active << 8) + l->inactive;
}

static __always_inline int overloaded(const struct load *l)
{
	return l->overloaded & LOAD_OVERLOADED;
}

/* Fit for a new connection: has weight and is below its upper threshold. */
static __always_inline int usable(const struct server *s, const struct load *l)
{
	return s->weight > 0 && !overloaded(l);
}

#endif
