/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections and templates expire: a timer sweeps the connection table, block by block. Memory is
 * read in its order, which the CPU reads ahead. A small table is swept at each tick; a big one
 * within a second, some blocks at each beat, so that no callback takes long.
 */
#ifndef IMBANG_EXPIRY_H
#define IMBANG_EXPIRY_H

#include "attack.h"
#include "conn_life.h"
#include "removal.h"
#include "sync.h"
#include "template.h"

/* Blocks of one callback, at most: some 100 us. */
#define SWEEP_BLOCKS 128
#define SWEEP_STEPS (SWEEP_BLOCKS * (INDEX_LINES + 16)) /* more than they can take */
#define SWEEP_LONGEST 150000                            /* [ns] of a callback */
#define SWEEP_PAUSE 500000                              /* [ns] */
#define SWEEP_PASS (NSEC_PER_SEC * 3 / 4)

struct walk {
	__u64 now;
	__u64 used;   /* lines of the block that have an entry */
	__u32 at;     /* the block's place in both ranges */
	__u32 end;    /* of this beat */
	__u32 number; /* of the block */
	__u32 line;
	__u32 due;     /* of eight lines, those to be looked at */
	__u32 free;    /* lines of the block */
	__u32 entries; /* lines that have one */
	__u32 lapses;
	__u32 late;
	__u64 until; /* this callback may run [ns] */
};

/* The sweep has come to an entry. */
__noinline int sweep_entry(__u32 index, __u64 now)
{
	struct conn seen = {};
	struct flow flow = {};
	enum due due;

	if (!entry_flow(index, &flow))
		return 0;
	if (flow.template == FLOW_REPLIES)
		return replies_due(&flow, now);
	due = conn_due(&flow, now, &seen);
	if (due == DUE_KEPT)
		sync_linger(&flow);
	if (due != DUE_OVER)
		return 0;
	if (!(seen.flags & CONN_DEAD)) { /* else the CPU did that which left it */
		conn_release(&flow, &seen);
		follow_tell(&flow, &seen, FOLLOW_CLOSE, 0);
	}
	return entry_drop(&flow, &seen);
}

/* What backups know of an entry is forgotten before its time wraps around. */
__noinline int sweep_told(__u32 index, __u64 now)
{
	struct settings *set = get_settings();
	struct flow flow = {};
	struct conn *c;
	__u32 claim;

	if (!entry_flow(index, &flow))
		return 0;
	c = conn_claim(&flow, &claim);
	if (!c)
		return 0;
	if (conn_lives(c))
		told_lapse(c, now, told_timeout(&flow, c, set));
	bucket_release(claim);
	return 0;
}

/* Eight lines of a block: which are due. No branch waits for them. Global, so that its arguments
 * are unknown to the verifier, which walks it once. */
__noinline __u64 sweep_lines(__u32 number, __u32 line, __u64 now, __u32 lapses)
{
	__u64 nothing = unknown_zero(), due = 0, expires, told = truth(lapses);
	void *block = block_of(number);

#pragma unroll
	for (__u32 n = 0; n < 8; n++) {
		struct conn *c = block_line(block, line + n, 1);
		__u64 lapsing = nothing;

		expires = nothing;
		if (c) {
			expires = entry_expires(c);
			lapsing = c->told_end;
		}
		due |= (not_after(DEAD_TIME, expires) &
			(not_after(expires, now) | (told & truth(lapsing))))
		       << n;
	}
	return due;
}

/* The next block: 1 if there is none in this beat. */
static __always_inline long sweep_block(struct walk *w)
{
	struct block_head *head;
	__u32 lines;

	blocks.counting += w->free;
	blocks.counted += w->entries;
	w->free = 0;
	w->entries = 0;
	w->used = 0;
	w->line = 0;
	if (w->at >= blocks_used() || w->at >= w->end)
		return 1;
	w->number = block_at(w->at++);
	head = block_head(w->number);
	if (!head || head->kind == BLOCK_BUCKETS || head->kind == BLOCK_NONE)
		return 0;
	w->used = ~block_free(head) & free_lines(head->kind);
	lines = head->kind == BLOCK_ENTRIES6 ? 2 : 1;
	w->entries = bits_of(w->used) * lines;
	w->free = bits_of(free_lines(head->kind)) * lines - w->entries;
	if (w->free)
		room_note(w->number, head->kind);
	if (!w->entries) /* it may become the other family's */
		room_note(w->number, other_kind(head->kind));
	return 0;
}

/* One step of the sweep: an entry that is due, or eight lines, or another block. In one
 * callback, as what ends an entry needs the other frames. */
static long sweep_step(__u32 i, struct walk *w)
{
	__u32 index;

	if (w->due) {
		if (bpf_ktime_get_ns() > w->until) {
			w->late = 1;
			return 1;
		}
		index = w->number * INDEX_LINES + w->line - 8 + lowest_bit(w->due);
		w->due &= w->due - 1;
		if (w->lapses)
			sweep_told(index, w->now);
		sweep_entry(index, w->now);
		return 0;
	}
	if (!(w->used >> (w->line & 63)) || w->line >= 64)
		return sweep_block(w);
	w->due = sweep_lines(w->number, w->line, w->now, w->lapses) & w->used >> w->line;
	w->line += 8;
	return 0;
}

/* One beat: some blocks. The time until the next one [ns]. */
static __always_inline __u64 sweep_table(struct clock *c, __u64 now)
{
	__u32 all = blocks_used();
	struct walk w = { .now = now, .at = c->cursor, .end = c->cursor + SWEEP_BLOCKS };

	/* Linux 6.1 would take out what the first step does not do. */
	w.due = w.late = w.line = unknown_zero();
	w.used = unknown_zero();
	w.until = bpf_ktime_get_ns() + SWEEP_LONGEST;
	if (!c->cursor)
		c->began = w.until - SWEEP_LONGEST;
	if (TIMERS_OFF) {
		w.end = all;
		w.until = ~0ULL;
	}
	w.lapses = !(c->passes & 15);
	bpf_loop(TIMERS_OFF ? 1 << 23 : SWEEP_STEPS, sweep_step, &w, 0);
	if (w.late) { /* the block that it came to is not done, nor counted */
		c->cursor = w.at - 1;
		return SWEEP_PAUSE;
	}
	c->cursor = w.at;
	merge_if_due();
	if (w.at < all)
		return SWEEP_PASS / (all / SWEEP_BLOCKS + 1);
	c->cursor = 0;
	c->passes++;
	c->took = bpf_ktime_get_ns() - c->began;
	blocks.free = blocks.counting;
	blocks.used = blocks.counted;
	blocks.counting = 0;
	blocks.counted = 0;
	return all <= SWEEP_BLOCKS ? TICK : SWEEP_PASS / (all / SWEEP_BLOCKS + 1);
}

static int table_timer(void *map, __u32 *key, struct clock *c)
{
	__u64 began = bpf_ktime_get_ns(), now = now_ns(), next;
	__u32 present = tick_after(now) - 1, took;

	if (clock_ends())
		return 0;
	next = sweep_table(c, now);
	took = bpf_ktime_get_ns() - began;
	if (took > c->longest)
		c->longest = took;
	if (present != c->tick) {
		c->tick = present;
		attack_judge(now);
	}
	bpf_timer_start(&c->timer, next < TICK ? next : TICK, 0);
	return 0;
}

static __always_inline int table_start(void)
{
	return clock_start(CLOCK_TABLE, table_timer, TICK);
}

#endif
