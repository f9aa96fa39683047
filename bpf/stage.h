/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the time of a packet goes: marks between the stages of its path. The
 * variant of the data plane that the lab measures (IMBANG_STAGES) adds up, for
 * each stage, the time that it took, or how often it called a map. The product has
 * none of it: STAGE(name) expands to nothing.
 *
 * STAGE(name) ends a stage: what ran since the mark before is of that stage.
 * STAGE_BEGIN() begins a packet. Both call a helper, so they must not stand where
 * a bpf_spin_lock is held. Reading the clock has a cost, which STAGE_BEGIN
 * measures once a packet, as a stage with nothing in it. The compiler may move work
 * that touches no memory across a mark.
 */
#ifndef IMBANG_STAGE_H
#define IMBANG_STAGE_H

#ifdef IMBANG_STAGES

enum stage {
	STAGE_EMPTY,    /* nothing: the cost of a mark */
	STAGE_PARSE,    /* read the packet and the settings */
	STAGE_FIND,     /* look for its connection; on the whole path follow it, too */
	STAGE_OPEN,     /* schedule, insert the connection and its timer entry, count */
	STAGE_FOLLOW,   /* state, timeout, counters */
	STAGE_ROUTE,    /* the next hop, cached or looked up */
	STAGE_REWRITE,  /* addresses, ports, checksums, TTL */
	STAGE_TRANSMIT, /* hardware addresses, redirect; the device's work follows later */
	STAGE_REPORT,   /* to tracers and followers, and counters of what changed */
	STAGES_ALL,
};

struct stage_cost {
	__u64 ends;    /* how often it ended */
	__u64 ns;      /* in it; 0 where calls are counted */
	__u64 lookups; /* of map elements; 0 where time is measured */
	__u64 changes; /* of map elements, inserted or deleted; likewise */
};

/* The lab runs packets on one CPU, one after the other. */
struct stage_costs {
	__u64 since;     /* the last mark [ns] */
	enum stage last; /* also makes the compiler describe the enum in BTF */
	__u32 pad;
	__u64 lookups;
	__u64 changes;
	struct stage_cost of[STAGES_ALL];
};

/* Global data: it is reached without a look-up and without room on the stack. */
struct stage_costs stages_measured SEC(".data.stages") = {};

/* Set before loading: count calls instead of measuring time. Counting costs time. */
const volatile __u32 stage_counts = 0;

static __always_inline void stage_end(enum stage stage)
{
	struct stage_cost *cost = &stages_measured.of[stage];

	if (stage_counts) {
		cost->lookups += stages_measured.lookups;
		cost->changes += stages_measured.changes;
	} else {
		cost->ns += bpf_ktime_get_ns() - stages_measured.since;
	}
	cost->ends++;
	stages_measured.last = stage;
	stages_measured.lookups = 0;
	stages_measured.changes = 0;
	if (!stage_counts)
		stages_measured.since = bpf_ktime_get_ns();
}

static __always_inline void stage_begin(void)
{
	stages_measured.lookups = 0;
	stages_measured.changes = 0;
	if (!stage_counts)
		stages_measured.since = bpf_ktime_get_ns();
	stage_end(STAGE_EMPTY);
}

static __always_inline void stage_count(__u64 *calls)
{
	if (stage_counts)
		++*calls;
}

/* A macro is not expanded within itself: these call the helpers. */
#define bpf_map_lookup_elem(map, key) \
	(stage_count(&stages_measured.lookups), bpf_map_lookup_elem(map, key))
#define bpf_map_update_elem(map, key, value, flags) \
	(stage_count(&stages_measured.changes), bpf_map_update_elem(map, key, value, flags))
#define bpf_map_delete_elem(map, key) \
	(stage_count(&stages_measured.changes), bpf_map_delete_elem(map, key))

#define STAGE(name) stage_end(STAGE_##name)
#define STAGE_BEGIN() stage_begin()

#else
#define STAGE(name) ((void)0)
#define STAGE_BEGIN() ((void)0)
#endif

#endif
