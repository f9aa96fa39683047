/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connection, packet and byte rates, as Linux's estimator has them
 * (ip_vs_est.c): every two seconds a quarter of the way to what was seen.
 */
#ifndef IMBANG_RATES_H
#define IMBANG_RATES_H

#include "by_id.h"
#include "clock.h"
#include "settings.h"

#define RATE_INTERVAL (2 * NSEC_PER_SEC)

/* A timer keeps its CPU from packets: it has so many beats in an interval, and
 * the ids take turns with them by runs that lie together in memory. */
#define RATE_BEATS 32
#define RATE_BEAT (RATE_INTERVAL / RATE_BEATS)
#define RATE_RUN 64

#define RATE_MAX_CPUS 1024

struct rate_sum {
	__u32 id;
	__u32 of_servers;
	struct counters total;
};

static long rate_add_cpu(__u32 cpu, struct rate_sum *sum)
{
	struct counters *c;

	if (sum->of_servers)
		c = paged_cpu(&server_counters, sum->id, PAGE_IDS, cpu);
	else
		c = paged_cpu(&service_counters, sum->id, PAGE_IDS, cpu);
	if (!c)
		return 1;
	sum->total.conns += c->conns;
	sum->total.in_packets += c->in_packets;
	sum->total.in_bytes += c->in_bytes;
	sum->total.out_packets += c->out_packets;
	sum->total.out_bytes += c->out_bytes;
	return 0;
}

/* Over an interval of 2 s, << 9 is "per second, scaled by 2^10", << 4 "per
 * second, scaled by 2^5". */
static __always_inline void rate_move(__u64 *average, __u64 *last, __u64 total, __u32 shift)
{
	__s64 rate = (total - *last) << shift;

	*last = total;
	*average += (rate - (__s64)*average) >> 2;
}

static __always_inline void rate_tick(struct rates *r, struct rate_sum *sum)
{
	bpf_loop(RATE_MAX_CPUS, rate_add_cpu, sum, 0);
	rate_move(&r->average.conns, &r->last.conns, sum->total.conns, 9);
	rate_move(&r->average.in_packets, &r->last.in_packets, sum->total.in_packets, 9);
	rate_move(&r->average.out_packets, &r->last.out_packets, sum->total.out_packets, 9);
	rate_move(&r->average.in_bytes, &r->last.in_bytes, sum->total.in_bytes, 4);
	rate_move(&r->average.out_bytes, &r->last.out_bytes, sum->total.out_bytes, 4);
}

/* The i-th id of a beat. */
static __always_inline __u32 rate_id(__u32 i, __u32 beat)
{
	return (i / RATE_RUN * RATE_BEATS + beat) * RATE_RUN + i % RATE_RUN;
}

static long rate_tick_service(__u32 i, __u32 *beat)
{
	struct rate_sum sum = { .id = rate_id(i, *beat) };
	struct rates *r = service_rates_of(sum.id);

	if (r)
		rate_tick(r, &sum);
	return 0;
}

static long rate_tick_server(__u32 i, __u32 *beat)
{
	struct rate_sum sum = { .id = rate_id(i, *beat), .of_servers = 1 };
	struct rates *r = server_rates_of(sum.id);

	if (r)
		rate_tick(r, &sum);
	return 0;
}

/* How many of n ids are the beat's; the last run may be a short one. */
static __always_inline __u32 rate_share(__u32 n, __u32 beat)
{
	__u32 whole = n / (RATE_RUN * RATE_BEATS);
	__s32 rest = n % (RATE_RUN * RATE_BEATS) - beat * RATE_RUN;

	if (rest < 0)
		rest = 0;
	if (rest > RATE_RUN)
		rest = RATE_RUN;
	return whole * RATE_RUN + rest;
}

static int rate_timer(void *map, __u32 *key, struct clock *c)
{
	struct settings *set = get_settings();
	__u32 beat = c->tick++ % RATE_BEATS;

	if (clock_ends())
		return 0;
	if (set) {
		bpf_loop(rate_share(set->services, beat), rate_tick_service, &beat, 0);
		bpf_loop(rate_share(set->servers, beat), rate_tick_server, &beat, 0);
	}
	/* The next beat is a full one: being late does not add up. */
	bpf_timer_start(&c->timer, RATE_BEAT - now_ns() % RATE_BEAT, 0);
	return 0;
}

static __always_inline int rate_start(void)
{
	return clock_start(CLOCK_ESTIMATOR, rate_timer, RATE_BEAT);
}

#endif
