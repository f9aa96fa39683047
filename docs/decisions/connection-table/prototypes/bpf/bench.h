/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs that the driver runs, of a design that has defined before:
 *
 *   table_find(flow, now)            1 if the flow has an entry that lives
 *   table_open(flow, now, timeout)   0, or an error: -EEXIST, -ENOMEM
 *   table_end(flow)                  1 if this call has ended the flow's entry
 *   table_sweep(budget, now, more)   ends what is due of the next `budget` entries; returns
 *                                    how many it has looked at; `more`: the pass is not over
 *
 * One run of a program handles a batch. Each CPU has its own request.
 */
#ifndef PROTOTYPE_BENCH_H
#define PROTOTYPE_BENCH_H

#include "flows.h"

#define MAX_CPUS 64
#define HISTOGRAM 4096
#define HISTOGRAM_SHIFT 5 /* columns of 32 ns, up to 131 us */

struct request {
	__u32 first;
	__u32 count;
	__u32 step; /* odd; 0: one flow. See flow_of */
	__u32 mask;
	__u32 shift;
	__u32 begin;
	__u32 share; /* mixed: one packet of so many opens a flow */
	__u32 pad;
	__u64 now; /* [ns] */
	__u64 timeout;
	__u64 opened; /* mixed: the next flow to open */
	__u64 zero;   /* 0, which the compiler does not know */
	__u64 ns;     /* results */
	__u64 done;
	__u64 failed;
	__u64 longest; /* mixed, clock: one packet [ns] */
	__u64 spent;   /* and all of them */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

/* Packets of the mixed program, by how long they took. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HISTOGRAM);
	__type(key, __u32);
	__type(value, __u64);
} histogram SEC(".maps");

struct run {
	__u64 first;
	__u32 step;
	__u32 mask;
	__u32 begin;
	__u32 shift;
	__u64 now;
	__u64 timeout;
	__u64 opened;
	__u64 share;
	__u64 done;
	__u64 failed;
	__u64 longest;
	__u64 spent;
};

static __always_inline struct request *request_of_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id() & (MAX_CPUS - 1);

	return bpf_map_lookup_elem(&requests, &cpu);
}

/*
 * The i-th flow of a batch. Of 2^k flows (`mask`; `shift` is about k / 2) each is visited once, in
 * an order without a stride. It depends on the result of the one before, so that the CPU does not
 * wait for the memory of several flows at once.
 */
static __always_inline void flow_of(const struct run *r, __u32 i, struct flow4 *f)
{
	__u32 n = (r->begin + i) * r->step & r->mask;

	n ^= n >> (r->shift & 31);
	n = n * r->step & r->mask;
	n ^= n >> (r->shift & 31);
	flow_number(r->first + n + (r->done >> 63), f);
}

static __always_inline void run_begin(const struct request *q, struct run *r)
{
	r->first = q->first;
	r->step = q->step;
	r->mask = q->mask;
	r->begin = q->begin;
	r->shift = q->shift;
	r->now = q->now;
	r->timeout = q->timeout;
	r->opened = q->opened;
	r->share = q->share;
	/* Not constants: the verifier need not follow each visit. */
	r->done = q->zero;
	r->failed = q->zero;
	r->longest = q->zero;
	r->spent = q->zero;
}

static __always_inline int run_end(struct request *q, const struct run *r, __u64 began)
{
	q->ns = bpf_ktime_get_ns() - began;
	q->done = r->done;
	q->failed = r->failed;
	q->opened = r->opened;
	q->longest = r->longest;
	q->spent = r->spent;
	return 0;
}

/* A program that visits each flow of a batch. */
#define BATCH(name, visit)                            \
	SEC("tc") int name(struct __sk_buff *skb)     \
	{                                             \
		struct request *q = request_of_cpu(); \
		struct run r;                         \
		__u64 began;                          \
                                                      \
		if (!q)                               \
			return -1;                    \
		run_begin(q, &r);                     \
		began = bpf_ktime_get_ns();           \
		bpf_loop(q->count, visit, &r, 0);     \
		return run_end(q, &r, began);         \
	}

static long visit_nothing(__u32 i, struct run *r)
{
	struct flow4 f;

	flow_of(r, i, &f);
	r->done += f.sport != 0;
	return 0;
}

static long visit_hash(__u32 i, struct run *r)
{
	struct flow4 f;

	flow_of(r, i, &f);
	r->done += (flow_hash(&f) >> 1) != 0;
	return 0;
}

static long visit_siphash(__u32 i, struct run *r)
{
	struct flow4 f;

	flow_of(r, i, &f);
	r->done += (flow_siphash(&f) >> 1) != 0;
	return 0;
}

static long visit_find(__u32 i, struct run *r)
{
	struct flow4 f;

	flow_of(r, i, &f);
	r->done += table_find(&f, r->now);
	return 0;
}

static long visit_open(__u32 i, struct run *r)
{
	struct flow4 f;

	flow_of(r, i, &f);
	if (table_open(&f, r->now, r->timeout))
		r->failed++;
	else
		r->done++;
	return 0;
}

static long visit_end(__u32 i, struct run *r)
{
	struct flow4 f;

	flow_of(r, i, &f);
	if (table_end(&f))
		r->done++;
	else
		r->failed++;
	return 0;
}

/* What reading the clock adds to each packet of the mixed load. */
static long visit_clock(__u32 i, struct run *r)
{
	__u64 began = bpf_ktime_get_ns();

	r->spent += bpf_ktime_get_ns() - began;
	r->done++;
	return 0;
}

/* A packet of a flow that is open, or the first of a new one; each is timed. */
static long visit_mixed(__u32 i, struct run *r)
{
	__u64 began = bpf_ktime_get_ns(), *column, ns;
	struct flow4 f;
	__u32 at;

	if (r->share && i % (__u32)r->share == 0) {
		flow_number(r->opened, &f);
		r->opened++;
		if (table_open(&f, r->now, r->timeout))
			r->failed++;
	} else {
		flow_of(r, i, &f);
		if (!table_find(&f, r->now))
			r->failed++;
	}
	ns = bpf_ktime_get_ns() - began;
	r->spent += ns;
	if (ns > r->longest)
		r->longest = ns;
	at = ns >> HISTOGRAM_SHIFT;
	if (ns >> HISTOGRAM_SHIFT >= HISTOGRAM)
		at = HISTOGRAM - 1;
	column = bpf_map_lookup_elem(&histogram, &at);
	if (column)
		(*column)++;
	r->done++;
	return 0;
}

BATCH(nothing, visit_nothing)
BATCH(hash, visit_hash)
BATCH(siphash, visit_siphash)
BATCH(find, visit_find)
BATCH(open, visit_open)
BATCH(end, visit_end)
BATCH(clock, visit_clock)
BATCH(mixed, visit_mixed)

/* What a timer's callback would do: one budget. */
SEC("tc") int sweep(struct __sk_buff *skb)
{
	struct request *q = request_of_cpu();
	__u64 began;

	if (!q)
		return -1;
	began = bpf_ktime_get_ns();
	q->failed = 0;
	q->done = table_sweep(q->count, q->now, &q->failed);
	q->ns = bpf_ktime_get_ns() - began;
	return 0;
}

char _license[] SEC("license") = "GPL";

#endif
