/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contract of a scheduler, after struct ip_vs_scheduler of Linux:
 *
 *   __u32 NAME_pick(struct pick *p)          a server id, or NO_SERVER
 *   void  NAME_changed(struct change *c)     optional: keep its memory true
 *
 * or, if it always takes the server that costs least,
 *
 *   struct cost NAME_cost(__s32 weight, const struct load *l)
 *
 * for which there is a tree (sched/tree.h) that finds it among many.
 *
 * It never chooses p->without (which reads as no server by server_id_nth and
 * candidate), and with p->peek it leaves no trace of having been asked.
 *
 * A scheduler is one header under sched/, one line in each switch below, and
 * its name in internal/model. The same code runs for packets, for table
 * edits (the table_changed program) and under BPF_PROG_TEST_RUN.
 *
 * A visit (a callback of bpf_loop) must not ask whether it is the first one:
 * verifiers before Linux 6.7 walk it with what it is given at first only, and
 * take out what is then never reached. "If there is none yet" would always
 * hold. A test finds code that is lost in this way.
 */
#ifndef IMBANG_SCHED_H
#define IMBANG_SCHED_H

#include "address.h"
#include "maps.h"

/* What a scheduler may look at to choose. Not a key of a table as it lies
 * here: Linux 6.1 wants keys on the program's own stack or in a table. */
struct pick {
	__u32 service; /* id */
	__u32 first;   /* the servers: order[first .. first + count - 1] */
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

/* The id of the server at a position in order of addition. */
static __always_inline __u32 server_id_at(__u32 first, __u32 position)
{
	__u32 slot = first + position;
	__u32 *id = bpf_map_lookup_elem(&order, &slot);

	return id ? *id : NO_SERVER;
}

/* A server's id, or NO_SERVER if the choice is made without it. */
static __always_inline __u32 candidate(const struct pick *p, __u32 id)
{
	return id == p->without ? NO_SERVER : id;
}

/* The i-th server of Linux's list: the latest added is the first. */
static __always_inline __u32 server_id_nth(const struct pick *p, __u32 i)
{
	return candidate(p, server_id_at(p->first, p->count - 1 - i));
}

/* ip_vs_dest_conn_overhead: an active connection weighs 256 inactive ones. */
static __always_inline __s64 overhead(const struct load *l)
{
	return ((__s64)l->active << 8) + l->inactive;
}

/* Fit for a new connection: has weight and is below its upper threshold. */
static __always_inline int usable(const struct server *s, const struct load *l)
{
	return s->weight > 0 && !l->overloaded;
}

#include "sched/cost.h"
#include "sched/lc.h"
#include "sched/wlc.h"
#include "sched/sed.h"
#include "sched/nq.h"
#include "sched/fo.h"
#include "sched/ovf.h"
#include "sched/tree.h"
#include "sched/least.h"
#include "sched/skip.h"
#include "sched/weights.h"
#include "sched/rr.h"
#include "sched/wrr.h"
#include "sched/hashed.h"
#include "sched/dh.h"
#include "sched/sh.h"
#include "sched/locality.h"
#include "sched/lblc.h"
#include "sched/lblcr.h"
#include "sched/mh.h"
#include "sched/twos.h"

/* Global, so that the verifier looks at all schedulers once for a program. */
__noinline __u32 schedule(struct pick *p, enum scheduler scheduler)
{
	if (!p)
		return NO_SERVER;
	switch (scheduler) {
	case SCHED_RR:
		return rr_pick(p);
	case SCHED_WRR:
		return wrr_pick(p);
	case SCHED_LBLC:
		return lblc_pick(p);
	case SCHED_LBLCR:
		return lblcr_pick(p);
	case SCHED_DH:
		return dh_pick(p);
	case SCHED_SH:
		return sh_pick(p);
	case SCHED_LC:
	case SCHED_WLC:
	case SCHED_SED:
	case SCHED_NQ:
	case SCHED_FO:
	case SCHED_OVF:
		return least_pick(p, scheduler);
	case SCHED_MH:
		return mh_pick(p);
	case SCHED_TWOS:
		return twos_pick(p);
	case SCHED_NONE:
		break;
	}
	return NO_SERVER;
}

static __always_inline void scheduler_changed(struct change *c)
{
	tree_changed(c);
	switch (c->service.scheduler) {
	case SCHED_RR:
		rr_changed(c);
		break;
	case SCHED_WRR:
		wrr_changed(c);
		break;
	case SCHED_DH:
		dh_changed(c);
		break;
	case SCHED_SH:
		sh_changed(c);
		break;
	case SCHED_MH:
		mh_changed(c);
		break;
	case SCHED_NONE:
	case SCHED_LC:
	case SCHED_WLC:
	case SCHED_LBLC:
	case SCHED_LBLCR:
	case SCHED_SED:
	case SCHED_NQ:
	case SCHED_FO:
	case SCHED_OVF:
	case SCHED_TWOS:
		break; /* they remember nothing but the tree */
	}
}

#endif
