/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The test variant: the same data plane, which user space can stop at hook
 * points and give a clock, random numbers and short retry loops. Everything is
 * off while `variant` is zero.
 */
#ifndef IMBANG_VARIANT_H
#define IMBANG_VARIANT_H

#include "types.h"

/* Where an operation can be stopped. The comment says what the program has
 * read by then, and what it is about to do. */
enum hook_point {
	/* connections */
	POINT_CONN_FOUND,    /* has the entry; nothing read of it yet */
	POINT_CONN_KILL,     /* about to mark it dead */
	POINT_CONN_MOVE,     /* about to change the state by a packet */
	POINT_CONN_FAST,     /* likewise, on the fast path */
	POINT_CONN_MARK,     /* about to set a flag */
	POINT_CONN_EXTEND,   /* about to write a later `expires` */
	POINT_CONN_COUNT,    /* the fast path: about to write expires, in_packets */
	POINT_CONN_ENDED,    /* ended the outdated one; about to open its successor */
	POINT_CONN_INSERT,   /* about to enter it */
	POINT_CONN_INSERTED, /* entered it, or not */
	POINT_CONN_OPEN,     /* has the chosen server's id */
	POINT_CONN_DUE,      /* the sweep: about to decide whether it ends */
	POINT_CONN_HOLD,     /* a template: about to count a connection more or less */
	POINT_CONN_MOVED,    /* changed the state; about to report that */
	POINT_REPLIES_FOUND, /* has an entry of replies; nothing read of it yet */
	/* services and schedulers */
	POINT_SERVICE_FOUND,       /* has the service's element */
	POINT_PICK_FOR,            /* copied the service's id; about to copy its list */
	POINT_CHOOSE,              /* copied the service; about to walk its list */
	POINT_RR,                  /* rr: has its memory; about to read the cursor */
	POINT_WRR,                 /* wrr: has read the cursor; about to walk the list */
	POINT_TABLE,               /* dh, sh, mh: has the service's table; nothing read yet */
	POINT_LOCALITY_PUT,        /* lblc: about to enter a locality */
	POINT_LOCALITY_SET,        /* lblcr: likewise */
	POINT_TEMPLATE_HOLD,       /* a template is valid; about to hold it */
	POINT_TEMPLATE_RELEASE,    /* the valid one is not it; about to look for the other */
	POINT_TEMPLATE_INVALIDATE, /* the one set aside is there; about to kill the valid one */
	POINT_TEMPLATE_OPEN,       /* another CPU's template was first; about to hold that */
};

#define HOOK_POINTS 32 /* room; a power of two */

/* One hook point. Who arms it sets `stops` last. */
struct hook_state {
	__u32 cpu;      /* user: arrivals of this CPU alone: 1 + its number; 0: of any */
	__u32 skip;     /* user: so many arrivals pass first */
	__u32 stops;    /* user: then so many stop, one after the other */
	__u32 reached;  /* kernel: have stopped since it was armed */
	__u32 released; /* user: may go on, of them */
	__u32 expired;  /* kernel: went on because they had stopped too long */
	__u64 deadline; /* kernel: of the one that is stopped; CLOCK_MONOTONIC [ns] */
};

/* The maps whose elements element.h changes. */
enum fault_map {
	FAULT_spare_blocks,
	FAULT_calls,
	FAULT_call_numbers,
	FAULT_fragments,
	FAULT_allowances,
	FAULT_proofs,
	FAULT_localities,
	FAULT_locality_sets,
	FAULT_bucket_tables,
	FAULT_maglevs,
	FAULT_MAPS,
};

/* Changes of a map that fail. Who sets it sets `times` last. */
struct fault {
	__s32 error; /* user: the error, negative */
	__u32 skip;  /* user: so many succeed first */
	__u32 times; /* user: then so many fail */
	__u32 hits;  /* kernel: have failed */
};

struct map_faults {
	struct fault update;
	struct fault remove;
};

struct controls {
	__u64 time;         /* [ns] in place of the kernel's clocks; 0: theirs */
	__u64 random;       /* state of the generator */
	__u32 seeded;       /* random numbers come from `random` */
	__u32 few_tries;    /* retry loops have so many iterations at most; 0: their own */
	__u32 timers_off;   /* start_clocks starts none */
	enum fault_map pad; /* so that the object describes the type */
	struct hook_state hooks[HOOK_POINTS];
	struct map_faults faults[FAULT_MAPS];
};

struct controls variant SEC(".data.variant") = {};

#define READ_VARIANT(field) (*(volatile typeof(variant.field) *)&variant.field)

/* An operation that is not released continues after this time [ns], or when all spins
 * are over, which takes about as long. */
#define HOOK_PATIENCE (12 * NSEC_PER_SEC)

/* The most that bpf_loop does at once. */
#define HOOK_SPINS (1 << 23)

#define HOOK_POINT(at) ((__u32)(at) & (HOOK_POINTS - 1))

/* `at`: the point, in the upper half which arrival this is. */
static long hook_spin(__u32 i, __u64 *at)
{
	struct hook_state *h = &variant.hooks[HOOK_POINT(*at)];

	if (*(volatile __u32 *)&h->released >= *at >> 32)
		return 1;
	return bpf_ktime_get_ns() >= *(volatile __u64 *)&h->deadline;
}

static __always_inline int hook_goes_on(__u64 *at)
{
	bpf_loop(HOOK_SPINS, hook_spin, at, 0);
	return hook_spin(0, at);
}

/* Without a loop: the callback of one would be another frame. */
#define HOOK_2(call) (call || call)
#define HOOK_8(call) (HOOK_2(HOOK_2(HOOK_2(call))))

/* Global: the verifier walks it once, not at every hook. Its frame is small, as
 * it comes on top of the deepest stacks. */
__noinline int hook_arrive(enum hook_point point)
{
	struct hook_state *h = &variant.hooks[HOOK_POINT(point)];
	__u64 at;

	if (!*(volatile __u32 *)&h->stops)
		return 0;
	if (h->cpu && h->cpu != bpf_get_smp_processor_id() + 1)
		return 0;
	if (h->skip) {
		h->skip--;
		return 0;
	}
	if ((__s32)__sync_fetch_and_add(&h->stops, -1) <= 0) {
		__sync_fetch_and_add(&h->stops, 1); /* another CPU was first */
		return 0;
	}
	h->deadline = bpf_ktime_get_ns() + HOOK_PATIENCE;
	at = point | (__u64)(__sync_fetch_and_add(&h->reached, 1) + 1) << 32;
	(void)HOOK_8(HOOK_8(hook_goes_on(&at)));
	if (*(volatile __u32 *)&h->released < at >> 32)
		__sync_fetch_and_add(&h->expired, 1);
	return 0;
}

/* The error of a change that is to fail, or 0. Inline: it takes no frame. Tests that set
 * faults change a map on one CPU at a time. */
static __always_inline long variant_fault(struct fault *f)
{
	if (!*(volatile __u32 *)&f->times)
		return 0;
	if (f->skip) {
		f->skip--;
		return 0;
	}
	f->times--;
	f->hits++;
	return f->error;
}

/* The upper half of a linear congruential generator (Knuth, MMIX). */
static __always_inline __u32 variant_random(void)
{
	__u64 next = READ_VARIANT(random) * 6364136223846793005ULL + 1442695040888963407ULL;

	READ_VARIANT(random) = next;
	return next >> 32;
}

#define HOOK(name) hook_arrive(POINT_##name)
#define FAULT(map, change) variant_fault(&variant.faults[FAULT_##map].change)
#define TRIES(n) (READ_VARIANT(few_tries) ? READ_VARIANT(few_tries) : (n))
#define VIRTUAL_TIME(real) (READ_VARIANT(time) ? READ_VARIANT(time) : (real))
#define VIRTUAL_RANDOM(real) (READ_VARIANT(seeded) ? variant_random() : (real))
#define FRAMELESS_IN_VARIANT static __always_inline
#define TIMERS_OFF READ_VARIANT(timers_off)

#endif
