/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lines of 64 bytes, in blocks, and where blocks come from. A block has a head and entries.
 *
 * PAGES_ARRAY: pages of several blocks, each an array map that a process makes.
 * PAGES_HASH: each block is an element of a hash without preallocation: a program adds blocks.
 * PAGES_BOTH: arrays, and for a program that finds none, the hash. Entries' blocks from there
 * have numbers of their own (SPARE_FIRST), so none is looked for twice.
 */
#ifndef PROTOTYPE_PAGES_H
#define PROTOTYPE_PAGES_H

#include "kernel.h"
#include "types.h"

#define PAGES_ARRAY 1
#define PAGES_HASH 2
#define PAGES_BOTH 3

/* Blocks of an array's page, log2: 8 blocks and the array's head are 32 KB, which the kernel
 * takes from its direct map; 512 blocks are 2 MB, which it maps by pages of 4 KB. */
#ifndef PAGE_BITS
#define PAGE_BITS 3
#endif

#define LINE_BITS 6
#define BLOCK_BYTES 4032

/* An element of the hash begins at a cache line: LLIST_NODE_SZ, struct htab_elem and the key are
 * 64 bytes before it. That of an array does not: it is moved by `array_pad`. */
#if PAGES == PAGES_HASH
#define BLOCK_LINES 63
#else
#define BLOCK_LINES 62
#endif

const volatile __u32 array_pad = 0; /* the driver: from the kernel's struct bpf_array */

/* An entry: its block, and its line in it (6 bits). A tag of 8 bits fits beside it. */
#define INDEX_BITS 24
#define INDEX_MASK ((1U << INDEX_BITS) - 1)
#define MAX_BLOCKS (1U << (INDEX_BITS - 6))
#define MAX_BUCKET_BLOCKS (MAX_BLOCKS / 8)
#define SPARE_FIRST (MAX_BLOCKS / 2) /* PAGES_BOTH */

struct block {
	__u8 bytes[BLOCK_BYTES];
};

union line {
	__u32 word[16];
	__u64 whole[8];
};

#if PAGES != PAGES_HASH
/* Without a name, and with sizes: clang does not describe what is only pointed to. */
#define PAGE                                         \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);    \
		__uint(max_entries, 1 << PAGE_BITS); \
		__uint(key_size, 4);                 \
		__uint(value_size, BLOCK_BYTES);     \
	}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_BLOCKS >> PAGE_BITS);
	__type(key, __u32);
	__array(values, PAGE);
} entry_pages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_BUCKET_BLOCKS >> PAGE_BITS);
	__type(key, __u32);
	__array(values, PAGE);
} bucket_pages SEC(".maps");
#endif

#if PAGES != PAGES_ARRAY
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_BLOCKS / 2);
	__type(key, __u32);
	__type(value, struct block);
} entry_blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_BUCKET_BLOCKS);
	__type(key, __u32);
	__type(value, struct block);
} bucket_blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block);
} zero_block SEC(".maps");
#endif

static __always_inline union line *block_line(void *block, __u32 line)
{
	asm volatile("" : "+r"(line));
	if (!block || line >= BLOCK_LINES)
		return 0;
	/* No arithmetic before the comparison with 0. */
	asm volatile("" : "+r"(block));
	return block + line * 64;
}

#if PAGES != PAGES_HASH
static __always_inline void *page_block(void *page, __u32 number)
{
	__u32 at = number & ((1 << PAGE_BITS) - 1);

	void *block = page ? bpf_map_lookup_elem(page, &at) : 0;

	return block ? block + (array_pad & 63) : 0;
}
#endif

static __always_inline void *entry_block(__u32 number)
{
#if PAGES != PAGES_HASH
	__u32 page = number >> PAGE_BITS;

	if (PAGES == PAGES_ARRAY || number < SPARE_FIRST)
		return page_block(bpf_map_lookup_elem(&entry_pages, &page), number);
#endif
#if PAGES != PAGES_ARRAY
	return bpf_map_lookup_elem(&entry_blocks, &number);
#else
	return 0;
#endif
}

static __always_inline union line *entry_line(__u32 index)
{
	return block_line(entry_block((index & INDEX_MASK) >> LINE_BITS),
			  index & ((1 << LINE_BITS) - 1));
}

/* Where it is not often: a call, and fewer instructions for the verifier. */
static __noinline union line *entry_line_far(__u32 index)
{
	return entry_line(index);
}

/* Has a program add a block of entries. */
__noinline long entry_block_add(__u32 number)
{
#if PAGES != PAGES_ARRAY
	__u32 zero = 0;
	struct block *empty = bpf_map_lookup_elem(&zero_block, &zero);

	return empty ? bpf_map_update_elem(&entry_blocks, &number, empty, BPF_NOEXIST) : -ENOMEM;
#else
	return -ENOMEM;
#endif
}

#endif
