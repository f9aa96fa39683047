/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs of the test variant: what the timers call, for a test to run when it
 * likes. The timer that each sets in the end was never made if `timers_off` was
 * set when the director was loaded, and stays so.
 */
#ifndef IMBANG_VARIANT_PROGRAMS_H
#define IMBANG_VARIANT_PROGRAMS_H

#include "expiry.h"
#include "rates.h"
#include "sweep.h"

static __always_inline struct clock *clock_of(__u32 *id)
{
	return bpf_map_lookup_elem(&clocks, id);
}

/* Ends the connections whose time has come. */
SEC("tc")
int sweep_now(struct __sk_buff *skb)
{
	__u32 id = CLOCK_TABLE;
	struct clock *c = clock_of(&id);

	return c ? table_timer(&clocks, &id, c) : 0;
}

/* One beat of the rates: one share of the ids. */
SEC("tc")
int beat_rates(struct __sk_buff *skb)
{
	__u32 id = CLOCK_ESTIMATOR;
	struct clock *c = clock_of(&id);

	return c ? rate_timer(&clocks, &id, c) : 0;
}

/* One beat of drop_entry's sweep. */
SEC("tc")
int beat_sweep(struct __sk_buff *skb)
{
	__u32 id = CLOCK_SWEEP;
	struct clock *c = clock_of(&id);

	return c ? sweep_timer(&clocks, &id, c) : 0;
}

#endif
