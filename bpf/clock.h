/* SPDX-License-Identifier: GPL-2.0-only */
/* The time, and the timers that run in the background, independently of commands,
 * which end. */
#ifndef IMBANG_CLOCK_H
#define IMBANG_CLOCK_H

#include "hook.h"
#include "maps.h"
#include "scratch.h"
#include "settings.h"

#define CLOCK_MONOTONIC 1

#define TICK_SHIFT 26 /* 2^26 ns */
#define TICK (1ULL << TICK_SHIFT)

/* The time [ns]. */
static __always_inline __u64 now_ns(void)
{
	return VIRTUAL_TIME(bpf_ktime_get_ns());
}

/* The time by CLOCK_BOOTTIME, which leases of failover are of [ns]. */
static __always_inline __u64 now_boot_ns(void)
{
	return bpf_ktime_get_boot_ns();
}

/* That of the kernel's last tick. */
static __always_inline __u64 now_coarse_ns(void)
{
	return VIRTUAL_TIME(bpf_ktime_get_coarse_ns());
}

/* Changes when that time does. */
static __always_inline __u64 now_jiffies(void)
{
	return VIRTUAL_TIME(bpf_jiffies64());
}

/* The tick in which a time [ns] has passed. */
static __always_inline __u32 tick_after(__u64 time)
{
	return (time >> TICK_SHIFT) + 1;
}

/* The tick with these low bits that is nearest to a time [ns]: 36 min around it. */
static __always_inline __u32 tick_near(__u16 low, __u64 time)
{
	__u32 present = tick_after(time);

	return present + (__s16)(low - (__u16)present);
}

/*
 * The time of the kernel's last tick [ns]. Asking the kernel costs a packet three
 * calls; but that time only changes when jiffies do, which are read in place. So
 * each CPU asks once in a tick. (Jiffies change a moment before it does: who asks
 * just then has the time of the tick before.)
 */
static __always_inline __u64 time_coarse(void)
{
	__u64 jiffies = now_jiffies();
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	struct moment *m;

	if (!room)
		return now_coarse_ns();
	m = &room->moment;
	if (m->jiffies != jiffies) {
		m->time = now_coarse_ns();
		barrier();
		m->jiffies = jiffies;
	}
	return m->time;
}

/* Whether a lease of such listeners, which commands renew while they run, has not ended. A
 * command that was killed renews none, and the first who finds its lease over puts 0 there. */
static __always_inline int listened(enum listeners kind)
{
	__u32 of = kind;
	__u64 *lease = bpf_map_lookup_elem(&listened_until, &of), until;

	if (!lease)
		return 0;
	until = *(volatile __u64 *)lease;
	if (!until)
		return 0;
	if (until > now_coarse_ns())
		return 1;
	__sync_val_compare_and_swap(lease, until, 0);
	return 0;
}

/* Whether the next build's timers go on in place of this one's. */
static __always_inline int clock_ends(void)
{
	return get_settings()->successor;
}

/* Sets a clock going, if it does not; 0 when it goes. */
static __always_inline int clock_start(__u32 id, void *callback, __u64 interval)
{
	struct clock *c = bpf_map_lookup_elem(&clocks, &id);
	long rc;

	if (!c)
		return -ENOENT;
	if (TIMERS_OFF)
		return 0;
	rc = bpf_timer_init(&c->timer, &clocks, CLOCK_MONOTONIC);
	if (rc == -EBUSY)
		return 0; /* it runs */
	if (rc)
		return rc;
	if (!c->tick) /* else it goes on where an earlier build's was */
		c->tick = tick_after(now_ns()) - 1;
	rc = bpf_timer_set_callback(&c->timer, callback);
	if (rc)
		return rc;
	return bpf_timer_start(&c->timer, interval, 0);
}

#endif
