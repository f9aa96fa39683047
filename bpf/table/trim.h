/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gives blocks back that have no entry any more, from the upper ends of both ranges, for a process
 * that then takes the pages away. Programs cannot wait for packets under way; so blocks of
 * buckets are given back only if they were not in use before the process had waited.
 */
#ifndef IMBANG_TABLE_TRIM_H
#define IMBANG_TABLE_TRIM_H

#include "reshape.h"

/* Takes a block out of use: 1, or 0 if it is in use. `unused`: buckets from there on were not in
 * use before the process had waited. */
static __always_inline int block_retire(__u32 number, __u32 unused)
{
	struct block_head *head = block_head(number);
	__u64 free = head ? block_free(head) : 0;
	__u32 at, *block;

	if (!head)
		return number >= SPARE_FIRST;
	if (head->kind == BLOCK_BUCKETS) {
		at = head->bucket / BLOCK_ENTRIES;
		block = bpf_map_lookup_elem(&bucket_blocks, &at);
		if (!block || head->bucket < unused || head->bucket < (__u32)geometry_now())
			return 0;
		*block = 0;
		head->kind = BLOCK_NONE;
		return 1;
	}
	if (head->kind == BLOCK_NONE || (free | UNOWNED) != (free_lines(head->kind) | UNOWNED) ||
	    __sync_val_compare_and_swap(&head->free, free, 0) != free)
		return 0;
	head->kind = BLOCK_NONE;
	return 1;
}

/* Another CPU has taken a block behind it: it stays. */
static __always_inline void block_restore(__u32 number)
{
	struct block_head *head = block_head(number);

	if (!head)
		return;
	head->kind = BLOCK_ENTRIES4;
	barrier();
	*(volatile __u64 *)&head->free = FREE_LINES4 | UNOWNED;
}

struct trimming {
	__u32 unused;
	__u32 done; /* blocks that were given back */
};

static long trim_page(__u32 i, struct trimming *t)
{
	__u32 taken = *(volatile __u32 *)&blocks.taken;

	if (!taken || !block_retire(taken - 1, t->unused))
		return 1;
	if (__sync_val_compare_and_swap(&blocks.taken, taken, taken - 1) != taken) {
		block_restore(taken - 1);
		return 1;
	}
	t->done++;
	return 0;
}

static long trim_spare(__u32 i, struct trimming *t)
{
	__u32 spare = *(volatile __u32 *)&blocks.spare, number = SPARE_FIRST + spare - 1;

	if (!spare || !block_retire(number, t->unused))
		return 1;
	if (__sync_val_compare_and_swap(&blocks.spare, spare, spare - 1) != spare) {
		block_restore(number);
		return 1;
	}
	/* If that is refused, the block is found to be there already when it is taken again. */
	(void)map_delete(spare_blocks, &number);
	t->done++;
	return 0;
}

#define TRIMS 4096 /* at a time */

/* How many blocks were given back. */
static __always_inline __u32 trim(__u32 unused)
{
	struct trimming t = { .unused = unused };

	if (!reshape_begin())
		return 0;
	bpf_loop(TRIMS, trim_spare, &t, 0);
	bpf_loop(TRIMS, trim_page, &t, 0);
	reshape_end();
	return t.done;
}

#endif
