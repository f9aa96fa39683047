/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gives blocks back that have no entry any more, from the upper ends of both ranges, for a process
 * that then takes the pages away. Programs cannot wait for packets under way, so the process does
 * so each time before it has them do this. What packets may know that were under way is kept until
 * the next time: blocks of buckets that were in use since the last time, and memory of the hash
 * that was given back then.
 */
#ifndef IMBANG_TABLE_TRIM_H
#define IMBANG_TABLE_TRIM_H

#include "reshape.h"

/* Takes a block out of use: 1, or 0 if it is in use. */
static __always_inline int block_retire(__u32 number)
{
	struct block_head *head = block_head(number);
	__u64 free = head ? block_free(head) : 0;
	__u32 at, *block;

	if (!head)
		return number >= SPARE_FIRST;
	if (head->kind == BLOCK_BUCKETS) {
		at = head->bucket / BLOCK_ENTRIES;
		block = bpf_map_lookup_elem(&bucket_blocks, &at);
		if (!block || head->bucket < shape.most || head->bucket < (__u32)geometry_now())
			return 0;
		*block = 0;
		return 1;
	}
	return head->kind != BLOCK_NONE && (free | UNOWNED) == (free_lines(head->kind) | UNOWNED) &&
	       __sync_val_compare_and_swap(&head->free, free, 0) == free;
}

/* Says of a block that was taken out of use that it may be taken again. */
static __always_inline void block_release(__u32 number, enum block_kind kind)
{
	struct block_head *head = block_head(number);

	barrier();
	if (head)
		block_become(head, kind);
}

/* Another CPU has taken a block behind it: it stays. */
static __always_inline void block_restore(__u32 number)
{
	struct block_head *head = block_head(number);

	if (!head)
		return;
	block_become(head, BLOCK_ENTRIES4);
	*(volatile __u64 *)&head->free = FREE_LINES4 | UNOWNED;
}

struct trimming {
	__u32 done; /* blocks that were given back */
	__u32 gone; /* number of the next one of the hash whose memory is given back */
};

static long trim_page(__u32 i, struct trimming *t)
{
	__u32 taken = *(volatile __u32 *)&blocks.taken;

	if (!taken || !block_retire(taken - 1))
		return 1;
	/* Before it is another's: who takes it gives it its kind. */
	block_release(taken - 1, BLOCK_NONE);
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

	if (!spare || !block_retire(number))
		return 1;
	if (__sync_val_compare_and_swap(&blocks.spare, spare, spare - 1) != spare) {
		block_restore(number);
		return 1;
	}
	block_release(number, BLOCK_RETIRED);
	t->done++;
	return 0;
}

/* Gives the memory back of a block of the hash that the last time was given back. If that is
 * refused, it can be taken again. */
static long trim_memory(__u32 i, struct trimming *t)
{
	__u32 number = t->gone++;

	if (!block_head(number))
		return 1;
	if (block_revive(number) && map_delete(spare_blocks, &number))
		block_release(number, BLOCK_RETIRED);
	return 0;
}

#define TRIMS 4096 /* at a time */

/* How many blocks were given back. */
static __always_inline __u32 trim(void)
{
	struct trimming t = { .gone = SPARE_FIRST + *(volatile __u32 *)&blocks.spare };

	if (!reshape_begin())
		return 0;
	bpf_loop(TRIMS, trim_memory, &t, 0);
	bpf_loop(TRIMS, trim_spare, &t, 0);
	bpf_loop(TRIMS, trim_page, &t, 0);
	shape.most = geometry_now();
	reshape_end();
	return t.done;
}

#endif
