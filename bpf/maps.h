/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tables. Each is pinned under its name; sizes here are defaults that
 * `imbang attach` can change before the first load.
 *
 * "user" maps are written by commands under the director's lock, "kernel"
 * maps by the programs.
 *
 * Tables by id and by slot are in pages, which are arrays. Programs cannot make maps, so a command
 * that adds a service or a server makes their pages, under the director's lock. They stay, and are
 * never replaced. by_id.h has the look-ups.
 *
 * Tables of one element are global variables, which programs read without a
 * look-up. The kernel keeps the section of each as an array of one element, which
 * is pinned under the variable's name. Values share a table if they have one
 * writer and an upgrade treats them alike.
 */
#ifndef IMBANG_MAPS_H
#define IMBANG_MAPS_H

#include "types.h"

#define MAX_SERVICES 16384
#define MAX_SERVERS 131072
#define MAX_SLOTS (4 * MAX_SERVERS)
#define MAX_CONNS4 (1 << 20)
#define MAX_CONNS6 (1 << 18)
#define MAX_LOCALITIES 8192
#define MAX_MARK_RULES 1024
#define MAX_ALLOWANCES 4096
#define MAX_FRAGMENTS 8192
#define MAX_PEERS 16
#define MAX_CHECK_FLOWS 65536
#define MAX_GUARDED 65536
#define MAX_LINKS 64
#define ROUTE_CACHE_BITS 10
#define ROUTE_CACHE_SIZE (1 << ROUTE_CACHE_BITS)
#define MAX_PROOFS (1 << 16)
#define CLIENT_SLOTS (1 << 14)
#define MAX_CALLS (1 << 16)
#define MAX_OUTBOUND (1 << 14)

#define PAGE_IDS 128    /* servers or services of a page */
#define PAGE_SLOTS 1024 /* and of lists */

/* Pages without a name, as block_pages has them. */
#define PAGED(table, entries, kind, element, size)          \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);   \
		__uint(max_entries, (entries) / (size));    \
		__type(key, __u32);                         \
		__array(values, PAGE(kind, element, size)); \
	} table SEC(".maps")

#define PAGE(kind, element, size)                  \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, size);         \
		__type(key, __u32);                \
		__type(value, element);            \
	}

#define GLOBAL(name) __hidden SEC(".data." #name)

/* The elements of pages, for their BTF alone: pages have none. */
struct elements {
	struct server server;
	struct load load;
	struct counters counters;
	struct rates rates;
	struct service_state service_state;
	struct fair_sum fair_sum;
	struct tree_pair tree_pair;
	struct crowd crowd;
	struct ramp_turn ramp_turn;
	struct maglev_turn maglev_turn;
};

/* user. */
struct config_table {
	struct elements elements[0];  /* of this build, as each has a table of its own */
	struct settings settings;     /* timeouts and switches */
	struct secret secret;         /* of challenges: random, once */
	struct quarantine quarantine; /* what may not be given to another yet */
	struct flow_secret hash;      /* of the connection table: random, once */
} config GLOBAL(config);

/* user: the virtual services. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* kernel: schedulers' memory, by service id. */
PAGED(service_states, MAX_SERVICES, ARRAY, struct service_state, PAGE_IDS);

/* kernel: by service id; true while a server has a slow start (ramp.h). */
PAGED(fair_sums, MAX_SERVICES, ARRAY, struct fair_sum, PAGE_IDS);

/* kernel: of servers that return, by server id. */
PAGED(ramp_turns, MAX_SERVERS, PERCPU_ARRAY, struct ramp_turn, PAGE_IDS);

/* user: server ids, an extent for each service (see struct service). */
PAGED(order, MAX_SLOTS, ARRAY, __u32, PAGE_SLOTS);

/* kernel: nodes of the services' trees, by the slots of their extents, which
 * begin at even ones (see sched/tree.h). */
PAGED(trees, MAX_SLOTS / 2, ARRAY, struct tree_pair, PAGE_SLOTS / 2);

/* user: written for a barrier alone. An update of a map of maps returns when no
 * program runs any more that could have read the former value (kernel:
 * maybe_wait_bpf_programs). */
struct barrier_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct barrier_map);
} barriers SEC(".maps");

/* user: the real servers, by server id. */
PAGED(servers, MAX_SERVERS, ARRAY, struct server, PAGE_IDS);

/* kernel: the connections of each server, by server id. */
PAGED(loads, MAX_SERVERS, ARRAY, struct load, PAGE_IDS);

/* user, which adds them: pages of blocks (table/blocks.h). Without a name, and with sizes: clang
 * does not describe what is only pointed to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SPARE_FIRST / PAGE_BLOCKS);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, PAGE_BLOCKS);
			__type(key, __u32);
			__type(value, struct block);
		});
} block_pages SEC(".maps");

/* kernel, which adds them: blocks from SPARE_FIRST on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SPARE);
	__type(key, __u32);
	__type(value, struct block);
} spare_blocks SEC(".maps");

/* Zeros, which they are copied from. */
struct block empty_block GLOBAL(empty);

/* kernel: the blocks of buckets, in the order of these: numbers, and 1 more; 0: none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BUCKET_BLOCKS);
	__type(key, __u32);
	__type(value, __u32);
} bucket_blocks SEC(".maps");

/* user. */
struct page_table pages GLOBAL(pages);

/* kernel. */
struct block_table blocks GLOBAL(blocks);

/* kernel. */
struct room_table room_left GLOBAL(room);

/* kernel. */
struct shape_table shape GLOBAL(shape);

/* user: which server has an address and port for a service of one virtual address
 * and port. It keeps them for as long as it has connections. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVERS);
	__type(key, struct endpoint);
	__type(value, struct reply_owner);
} reply_owners SEC(".maps");

/* kernel: the numbers of the calls that have a template (call.h). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CALLS);
	__type(key, struct call);
	__type(value, __u32);
} calls SEC(".maps");

/* kernel: and the calls by their numbers, for as long as the template is in the
 * connection table. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CALLS);
	__type(key, __u32);
	__type(value, struct call);
} call_numbers SEC(".maps");

/* Where the Call-ID of the packet at hand is read (pe_sip.h). */
#define SIP_WINDOW 64 /* [bytes] */

struct sip_reader {
	struct call call;
	__u32 offset;  /* of the payload in the frame [bytes] */
	__u32 limit;   /* of the payload [bytes] */
	__u32 at;      /* in it */
	__u32 from;    /* where the search for the header began */
	__u32 value;   /* where the header's value begins */
	__u32 state;   /* enum sip_state */
	__u32 matched; /* bytes of the name, or of the value */
	__u32 loaded;  /* where the window begins in the payload */
	__u8 last;     /* the byte before */
	__u8 found;
	__u8 pad[2];
	__u8 window[SIP_WINDOW];
};

/* user: the servers, by address and port, that may open connections to clients:
 * those of services with an engine. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_OUTBOUND);
	__type(key, struct endpoint);
	__type(value, __u32);
} outbound SEC(".maps");

/* kernel: fragmented packets on their way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTS);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* kernel: bucket tables of dh and sh, by service id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct buckets);
} bucket_tables SEC(".maps");

/* kernel: tables of mh, by service id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct maglev);
} maglevs SEC(".maps");

/* kernel: the servers' turns while a table of mh is made in `cache.maglev`. */
PAGED(maglev_turns, MAX_SERVERS, ARRAY, struct maglev_turn, PAGE_IDS);

/* kernel: lblc's cache. Least recently used entries leave a full one. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_LOCALITIES);
	__type(key, struct locality_key);
	__type(value, struct locality);
} localities SEC(".maps");

/* kernel: lblcr's cache. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_LOCALITIES);
	__type(key, struct locality_key);
	__type(value, struct locality_set);
} locality_sets SEC(".maps");

/* user: marks for packets by destination, for fwmark services. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MARK_RULES);
	__type(key, struct mark_key);
	__type(value, __u32);
} marks SEC(".maps");

/* kernel: counters, by service id and by server id. */
PAGED(service_counters, MAX_SERVICES, PERCPU_ARRAY, struct counters, PAGE_IDS);

PAGED(server_counters, MAX_SERVERS, PERCPU_ARRAY, struct counters, PAGE_IDS);

/* user: counters at the last zeroing, which listings subtract. */
PAGED(service_zeros, MAX_SERVICES, ARRAY, struct counters, PAGE_IDS);

PAGED(server_zeros, MAX_SERVERS, ARRAY, struct counters, PAGE_IDS);

/* user: counters when the id was given to its present service or server, from
 * which totals are counted that no zeroing disturbs. */
PAGED(service_births, MAX_SERVICES, ARRAY, struct counters, PAGE_IDS);

PAGED(server_births, MAX_SERVERS, ARRAY, struct counters, PAGE_IDS);

/* kernel: rates, by service id and by server id. */
PAGED(service_rates, MAX_SERVICES, ARRAY, struct rates, PAGE_IDS);

PAGED(server_rates, MAX_SERVERS, ARRAY, struct rates, PAGE_IDS);

/* kernel. */
struct state_table {
	struct attack attack;   /* whether there is a SYN flood */
	struct defence defence; /* what the defence modes remember */
	__u32 listed;           /* whether replies ever had an entry */
	__u32 pad;
} state GLOBAL(state);

/* kernel: what became of SYNs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handshake_counts);
} handshakes SEC(".maps");

/* kernel: unproven entries, by service id. */
PAGED(crowds, MAX_SERVICES, ARRAY, struct crowd, PAGE_IDS);

/* kernel: connections of clients, by a hash of their network (client.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLIENT_SLOTS);
	__type(key, __u32);
	__type(value, __s32);
} client_counts SEC(".maps");

/* kernel: clients' networks that have answered a challenge. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PROOFS);
	__type(key, union address);
	__type(value, struct proof);
} proofs SEC(".maps");

/* kernel: what beats in the background: the table's sweep (0), the estimator (1),
 * drop_entry (2). */
struct clock {
	struct bpf_timer timer;
	__u32 tick; /* the last one that it has done */
	/* CLOCK_TABLE: */
	__u32 cursor;  /* the block that is next */
	__u32 passes;  /* through all blocks so far */
	__u32 longest; /* callback so far [ns] */
	__u64 began;   /* the pass that is under way: CLOCK_MONOTONIC [ns] */
	__u64 took;    /* the last pass [ns] */
};

enum clock_id { CLOCK_TABLE, CLOCK_ESTIMATOR, CLOCK_SWEEP, CLOCKS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLOCKS);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

/* What time it is (clock.h). */
struct moment {
	__u64 jiffies; /* 0: none yet */
	__u64 time;    /* CLOCK_MONOTONIC [ns] */
};

/* kernel: what the director may still send of its own to each sender, and under the
 * unspecified address, which is no sender's, to all together. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_ALLOWANCES);
	__type(key, union address);
	__type(value, struct allowance);
} allowances SEC(".maps");

/* kernel: what became of packets, by enum reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

/* tracers and followers: when the last lease of each kind ends [ns]. The kernel puts 0 here
 * when it has, so that without listeners a packet costs one comparison. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LISTENERS);
	__type(key, __u32);
	__type(value, __u64);
} listened_until SEC(".maps");

/* tracers: each writes its own element; a free one is taken under the
 * director's lock. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACERS);
	__type(key, __u32);
	__type(value, struct tracer);
} tracers SEC(".maps");

/* tracers: the ring that each reads. */
struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TRACERS);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* kernel: events that found a ring full: a tracer's, and behind them a follower's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACERS + FOLLOWERS);
	__type(key, __u32);
	__type(value, __u64);
} unheard SEC(".maps");

/* followers: as tracers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FOLLOWERS);
	__type(key, __u32);
	__type(value, struct follower);
} followers SEC(".maps");

/* followers: the ring that each reads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FOLLOWERS);
	__type(key, __u32);
	__array(values, struct ring);
} follow_rings SEC(".maps");

/* What a route depends on. */
struct route_key {
	union address src;
	union address dst; /* in IPv4's case mapped addresses, both */
	__u32 ifindex;     /* where packets come in */
	__u8 family;
	__u8 protocol;
	__u8 tos;
	__u8 pad;
};

/* An entry of the route cache: where the routing table sends packets, and the
 * neighbour there. */
struct route {
	struct route_key of;
	__u64 source;        /* bits that count of the source: all or none, */
	union address block; /* and of the destination */
	__u64 until;         /* valid until [ns] */
	__u64 asked;         /* when the neighbour last was [ns] */
	union address next;  /* router, or the host itself */
	__u32 ifindex;
	__u16 mtu;
	__u16 fits; /* the longest packet that it serves; 0: none, each pair has its own route */
	__u8 dmac[6];
	__u8 smac[6];
	__u8 known; /* the neighbour's hardware address */
	__u8 ask;   /* the neighbour: it is not known, or was not asked lately */
	__u8 peer;  /* the device is one of `peers` */
	__u8 pad;
	__u16 slot; /* of itself */
};

#define BLOCK_BITS 10

/* What the kernel says of the routing tables of a family. */
struct routing {
	__u64 net;   /* the network namespace, in the kernel's memory; 0: not known */
	__u32 alike; /* all sources are */
	__u32 pad;
	__u16 blocks[1 << BLOCK_BITS]; /* how long blocks are, by the beginning of addresses */
};

/* kernel: what may be lost. */
struct cache_table {
	struct routing routing[2]; /* of IPv4 and of IPv6: see sources.h */
	/* Where a table of mh is made. Only table edits write here, and the director's
	 * lock lets one of them run at a time. */
	struct maglev maglev;
} cache GLOBAL(cache);

/* The longest packet that is cut into fragments [bytes]. */
#define CUT_LONGEST 16000

/* A packet that is cut into fragments: its next hop, and its bytes.
 * There is room for twice as many, as the verifier knows no better. */
struct cutting {
	struct bpf_redir_neigh next;
	__u32 device;
	__u16 mtu;
	__u8 known;                  /* the neighbour's hardware address */
	__u8 ask;                    /* it */
	__u8 bytes[2 * CUT_LONGEST]; /* behind the IP header */
};

/* kernel: of the packet at hand. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cutting);
} cuttings SEC(".maps");

#define ASKED_BITS 10

/* A neighbour that was asked lately: its hardware address and device. */
struct asked_neighbour {
	__u64 neighbour;
	__u64 until; /* [ns] */
};

/* kernel: what XDP need not ask, by a hash of the neighbour. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << ASKED_BITS);
	__type(key, __u32);
	__type(value, struct asked_neighbour);
} asked SEC(".maps");

/* user: devices whose frames may be put into the other end at once: veth pairs
 * that lead into another network namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PEERS);
	__type(key, __u32);
	__type(value, __u32);
} peers SEC(".maps");

/* user: the sockets of health checks that are under way: their flows, and those of the
 * replies (steer.h). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CHECK_FLOWS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow);
	__type(value, struct check_flow);
} check_flows SEC(".maps");

/* kernel: the route cache (route.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROUTE_CACHE_SIZE);
	__type(key, __u32);
	__type(value, struct route);
} routes SEC(".maps");

/* user: connections to be entered (record.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CONN_RECORDS);
	__type(key, __u32);
	__type(value, struct conn_record);
} conn_records SEC(".maps");

/* user: the calls of those of them that are a call's template. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CONN_RECORDS);
	__type(key, __u32);
	__type(value, struct call);
} call_records SEC(".maps");

/* the process that elects the master: by enum failover_word. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAILOVER_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} failover_words SEC(".maps");

/* likewise: by device, the peer that unknown connections' packets are sent to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, struct hand_over);
} hand_overs SEC(".maps");

/* likewise: hardware addresses of other directors. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LINKS);
	__type(key, struct link_address);
	__type(value, __u32);
} peer_directors SEC(".maps");

/* likewise: servers whose replies are not known by address and port (replies.h). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVERS);
	__type(key, union address);
	__type(value, __u32);
} reply_addresses SEC(".maps");

/* likewise: the group of addresses that each guarded one is of. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_GUARDED);
	__type(key, union address);
	__type(value, __u32);
} guarded SEC(".maps");

/* likewise: when each group's lease ends, CLOCK_BOOTTIME [ns]. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ADDRESS_GROUPS);
	__type(key, __u32);
	__type(value, __u64);
} address_leases SEC(".maps");

/* A search for a route in the kernel's table (fib.h). */
struct fib_search {
	__u64 node;  /* that is looked at; 0: none */
	__u64 route; /* of the node's prefix, that is looked at; 0: none */
	union {
		struct {              /* in IPv4's trie */
			__u64 up;     /* node to go back to, */
			__u32 index;  /* by which of its children the search came */
			__u32 key;    /* the address */
			__u32 differ; /* it, from the leaf's */
			__u32 tos;
		};
		struct { /* in IPv6's: the address, in host order */
			__u64 upper;
			__u64 lower;
			__u64 main; /* the main table's root, after the local table */
		};
	};
	union address next; /* the next hop that the route must have, */
	__u32 ifindex;      /* and its device */
	__u16 hop;          /* which of the route's next hops is looked at */
	__u8 direct;        /* the next hop is the packet's destination */
	__u8 found;         /* the route, and of it: */
	__u32 mtu;          /* 0: none */
	__u16 fits;         /* the longest packet that the same answer is sure for in the block */
	__u8 several;       /* next hops, chosen by addresses */
	__u8 excepted;      /* addresses behind it may have a path MTU of their own */
	/* Low bits in which addresses of the block differ: of IPv4, or of IPv6's upper half. */
	__u64 free;
	__u8 exact; /* the block is one IPv6 address */
	__u8 unused[7];
};

/*
 * Of the program that runs, for what is too big for the stack. The enums, the event and
 * entries are there for their BTF alone: user space reads numbers and layout from it.
 */
struct scratch {
	struct moment moment;
	struct service service;   /* the copy that the packet at hand uses */
	struct explanation story; /* what is told of it */
	struct sip_reader sip;
	struct hand hand4; /* the CPU's, for entries of either family */
	struct hand hand6;
	__u32 rank[2];   /* of an entry that is enough, of IPv4 and IPv6 (displace.h) */
	__u32 displaced; /* searches so far */
	__u32 pad2;
	struct search searches[2]; /* under way */
	__u32 searching;
	struct flow flow; /* of which is told: follow_state4 */
	__u32 pad;
	union { /* room to build values */
		struct buckets buckets;
		struct locality_set set;
		struct bpf_fib_lookup lookup;
		struct fib_search fib;
		enum conn_state conn_state;
		enum conn_flag conn_flag;
		enum service_flag service_flag;
		enum reason reason;
		enum news news;
		enum defence_mode defence_mode;
		enum engine engine;
		enum entry entry;
		enum repair_result repair_result;
		enum follow_kind follow_kind;
		enum syncing syncing;
		enum record_kind record_kind;
		enum failover_word failover_word;
		struct follow_event follow_event;
		struct conn4 conn4;
		struct conn6 conn6;
	};
};

/* Questions and edits come from a process, which packets may interrupt. */
enum scratch_slot { SCRATCH_PACKET, SCRATCH_PROCESS, SCRATCH_SLOTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_SLOTS);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

#endif
