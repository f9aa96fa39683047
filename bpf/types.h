/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything the data plane shares with user space: keys, values, numbers.
 * bpf2go turns the types named in internal/bpfobj into Go types, so a field
 * added here appears there after `make generate`.
 *
 * Addresses are 16 bytes in network order, IPv4 as ::ffff:a.b.c.d, so that
 * code and tables serve both families; only entries of the connection table are of
 * one, because there the key's size is most of the memory.
 */
#ifndef IMBANG_TYPES_H
#define IMBANG_TYPES_H

#include "kernel.h"
#include "sched/list.h"

#define NSEC_PER_SEC 1000000000ULL

#define AF_INET 2
#define AF_INET6 10

/* No server: schedulers return it, empty hash buckets hold it. */
#define NO_SERVER 0xffffffffU

/* "Before the first server": where a walk over the list starts. */
#define LIST_HEAD 0xffffffffU

union address {
	__be32 word[4]; /* IPv4: 0, 0, ntohs(0xffff) pair, the address */
	__u8 byte[16];
};

/* Names a virtual service. Either addr, port and protocol, or fwmark. */
struct service_key {
	union address addr;
	__u32 fwmark; /* host order, 0 if none */
	__be16 port;  /* 0: every port */
	__u8 protocol;
	__u8 family;
};

/* IP_VS_SVC_F_* of uapi/linux/ip_vs.h. */
enum service_flag {
	SVC_PERSISTENT = 0x01,
	SVC_ONE_PACKET = 0x04,
	SVC_SCHED_1 = 0x08, /* sh-fallback */
	SVC_SCHED_2 = 0x10, /* sh-port */
	SVC_SCHED_3 = 0x20,
};

enum scheduler {
	SCHED_NONE = 0,
#define SCHED_NUMBER(NUMBER, name, number) SCHED_##NUMBER = number,
	SCHEDULERS_BY_COST(SCHED_NUMBER) SCHEDULERS_BY_PICK(SCHED_NUMBER)
#undef SCHED_NUMBER
};

/* What a persistence template stands for, in addition to the clients: the value of
 * struct service and struct conn. */
enum template_kind {
	TEMPLATE_NONE,    /* the service is not persistent */
	TEMPLATE_PORT,    /* protocol, virtual address and port */
	TEMPLATE_ADDRESS, /* protocol and virtual address: port 0, and FTP */
	TEMPLATE_MARK,    /* the firewall mark */
	TEMPLATE_CALL,    /* struct conn alone: a call (struct call) */
};

/* Likewise: the entry is no connection's, but that of one's replies. No value of the enumeration,
 * which struct service has: an upgrade compares. */
#define TEMPLATE_REPLIES (TEMPLATE_CALL + 1)

/* A persistence engine: what identifies templates in addition to the clients. */
enum engine {
	ENGINE_NONE,
	ENGINE_SIP, /* the Call-ID of SIP over UDP */
};

/*
 * A service as the packet path sees it. User space replaces the whole value
 * on each change. The element that held the value before is the next one that
 * an update takes, while packets still read it; so a packet copies the value
 * and uses the copy if `check` confirms it (service.h).
 *
 * The servers of a service are the ids in order[first .. first + count - 1],
 * in the order of their addition. Linux keeps them the other way round (a new
 * server goes to the head of the list), so schedulers walk from the end.
 */
struct service {
	__u32 id;       /* index into service_states and service_counters */
	__u32 flags;    /* enum service_flag */
	__u32 first;    /* first slot in order[] */
	__u32 count;    /* servers */
	__u32 capacity; /* slots reserved at first: none, or a power of two */
	__u32 timeout;  /* of persistence [s] */
	__be32 netmask; /* of persistence; IPv6: the prefix's length [bits] */
	enum scheduler scheduler;
	enum template_kind template;
	__u32 fwmark;
	__be16 port;
	__u8 engine; /* enum engine; without persistence, it lets servers send first */
	__u8 pad;
	/* Counts the schedulers that services with this id have had, from 1: the
	 * owner of what a scheduler remembers (sched/contract.h). */
	__u32 incarnation;
	__u64 check; /* of the key and all of the above: see service_check */
};

/* What is known of a service's tree (sched/tree.h). */
struct tree {
	__u32 tag;   /* of its nodes; 0: there is none */
	__u32 first; /* the list that it is made of: as in struct service */
	__u32 count;
	__u32 leaves; /* a power of two, not below the count */
	enum scheduler rule;
};

/* Two nodes of a tree below one: their winners' ids, and the tree's tag in the
 * upper halves. */
struct tree_pair {
	__u64 node[2];
};

/* What a scheduler remembers between two picks, by service id. */
struct service_state {
	/* Each is one word, so that compare-and-swap covers the incarnation that
	 * it belongs to. rr: the position of the last pick in the low half
	 * (LIST_HEAD: none yet), the incarnation in the high half. wrr: see
	 * sched/wrr.h. */
	__u64 rr_cursor;
	__u64 wrr_cursor;
	__u32 max_weight;  /* wrr: the highest weight less (step - 1) */
	__u32 step;        /* wrr: greatest common divisor of the weights */
	__u32 incarnation; /* the last one that a scheduler was initialised for */
	struct tree tree;
	/* Who changes nodes of the tree: how many in the low half, and how often
	 * one more came in the high half. */
	__u64 climbers;
};

enum server_flag {
	SERVER_AVAILABLE = 0x1,    /* in its service's list */
	SERVER_OWNS_REPLIES = 0x2, /* `reply_owners` names it for its address and port */
	SERVER_DRAINING = 0x4,     /* gets no new connections, its effective weight is 0 */
};

/* IP_VS_CONN_F_* forwarding methods. */
enum forward {
	FORWARD_MASQ = 0,
	FORWARD_LOCAL = 1,
	FORWARD_TUNNEL = 2,
	FORWARD_ROUTE = 3,
};

/* A real server of one service, by server id. Written by user space only. */
struct server {
	union address addr;
	union address source;     /* the director's, of tunnels and hairpins; 0: not known.
				   * The server's own: it is the director */
	struct service_key owner; /* kept after deletion, to revive the server */
	/* Kernel: the hardware address that its packets were found to come from, and when
	 * (reply_side.h). An edit may write an earlier one back, which is too old then. */
	__u64 sender;
	__u64 quiescent;   /* since when its weight is 0: CLOCK_MONOTONIC [ns] */
	__s32 weight;      /* effective: schedulers read this one. 0: quiescent */
	__s32 last_weight; /* the weight before it was made quiescent */
	__u32 upper;       /* connection thresholds, 0: none */
	__u32 lower;
	__u32 service; /* id of the owner while available */
	__be16 port;   /* 0: as the client asked */
	__u16 tunnel_port;
	__u16 tunnel_flags;
	__u16 tunnel_type;
	enum forward forward;
	enum server_flag flags;
	__u32 added;   /* a number that grows with each addition to the table */
	__u32 retired; /* struct quarantine's barriers when it left its list */
	/* What `weight` is made of (Effective in internal/model). Packets read
	 * neither. */
	__s32 administrative; /* the weight that the user set */
	__u8 withheld;        /* share of it that health checks withhold [%]: 0 up, 100 down */
	__u8 withheld_part;   /* and of a percent [1/253], below 253 */
	__u8 pad3[2];         /* not pad: an upgrade refuses a field that became shorter */
	/* While it is draining: when its connections are reset, CLOCK_MONOTONIC [ns];
	 * 0: never. */
	__u64 drain_until;
	__u64 ramp_since; /* since when its weight is not 0, CLOCK_MONOTONIC [ns]; 0: no ramp */
	__u32 slow_start; /* time in which it gets its full share [ms]; 0: at once */
	__u32 pad2;
};

/* What becomes of the packets of a health check's socket, or of their replies (steer.h). */
struct check_flow {
	union address addr; /* instead of the server's; of a reply: the server's */
	__u64 until;        /* CLOCK_MONOTONIC [ns]: a daemon that was killed leaves flows */
	__be16 port;
	__u8 reply;
	__u8 seen; /* a packet of it was steered */
	__u32 pad;
	/* The server as its clients' packets would find it: it need not be in the
	 * table, and its id may be another's by now. Not of a reply. */
	struct server server;
};

/* Fractions of one. */
#define PART_SHIFT 16
#define WHOLE_PART (1 << PART_SHIFT)

/* What a fair share of a service's new connections is of. */
enum fair { FAIR_WEIGHT, FAIR_NUMBER, FAIR_ALL };

/* Of a service whose servers have a slow start: over all servers that have a weight. */
struct fair_sum {
	__u64 sum; /* of weights, or their number; 0: not known */
	enum fair fair;
	__u32 pad;
};

/* A ramp's turns, by server id: of each CPU, what a server may take of the connections
 * that the CPU opens. */
struct ramp_turn {
	__u64 seen;   /* the service's connections on this CPU up to the last look */
	__u64 since;  /* of the ramp, as in struct server */
	__u32 credit; /* connections that it may take [2^-16] */
	__u32 part;   /* of the connections, at the last look [2^-16] */
};

#define QUARANTINED_EXTENTS 256
#define QUARANTINED_SERVICES 256

/* A range of slots in order[]. */
struct extent {
	__u32 first;
	__u32 size;
};

/*
 * What left the tables since the last barrier, which waits until no packet is
 * under way that began before it. Until then a packet may hold such an extent, id
 * of a service or id of a server, and no other object may get it. A server's stamp is
 * in struct server: it is in quarantine while `retired` equals `barriers`.
 */
struct quarantine {
	__u32 barriers; /* so far */
	__u32 extents;  /* in `extent` */
	__u32 services; /* in `service` */
	__u32 all;      /* more than there is room for: whatever is free */
	struct extent extent[QUARANTINED_EXTENTS];
	__u32 service[QUARANTINED_SERVICES]; /* ids */
};

/* A server's address and port, in one protocol. */
struct endpoint {
	union address addr;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* The service that such an address and port serves: its server's owner. */
struct reply_owner {
	__u32 server; /* id */
	__u32 shared; /* kernel: other services' connections came to it, too */
};

/* The connections of a server, by server id. Written by the kernel only,
 * but for the overload flag when thresholds change. */
struct load {
	__u32 active;
	__u32 inactive;
	__u32 persistent;
	__u32 overloaded; /* LOAD_OVERLOADED, and LOAD_UNPROVEN for each unproven entry */
	/* For the tree, made known by edits: */
	__u32 position; /* in its service's list, in order of addition */
	__s32 weight;
};

/* Bits of struct load.overloaded. The count has no word of its own: upgrades keep the layout,
 * and a connection that opens writes this cache line anyway. */
#define LOAD_OVERLOADED 1U /* reached its upper threshold */
#define LOAD_UNPROVEN 2U   /* times the entries of the server with CONN_UNPROVEN */

/* Per-CPU counters of a service or server. Bytes are IP bytes on the wire:
 * the packets of a GSO super-packet are counted one by one. */
struct counters {
	__u64 conns;
	__u64 in_packets; /* towards the server */
	__u64 in_bytes;
	__u64 out_packets; /* towards the client */
	__u64 out_bytes;
};

/* Linux's estimator (ip_vs_est.c): totals at the last tick, and averages
 * scaled by 2^10 for counts and 2^5 for bytes. */
struct rates {
	struct counters last;
	struct counters average;
};

/* IP_VS_TCP_S_* of include/net/ip_vs.h, and what is behind it here. */
enum conn_state {
	TCP_NONE = 0,
	TCP_ESTABLISHED,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
	TCP_SYNACK,
	CONN_UDP,
	CONN_TEMPLATE, /* a persistence template */
	/* IP_VS_SCTP_S_* */
	SCTP_NONE,
	SCTP_INIT1,
	SCTP_INIT,
	SCTP_COOKIE_SENT,
	SCTP_COOKIE_REPLIED,
	SCTP_COOKIE_WAIT,
	SCTP_COOKIE,
	SCTP_COOKIE_ECHOED,
	SCTP_ESTABLISHED,
	SCTP_SHUTDOWN_SENT,
	SCTP_SHUTDOWN_RECEIVED,
	SCTP_SHUTDOWN_ACK_SENT,
	SCTP_REJECTED,
	SCTP_CLOSED,
	CONN_STATES,
};

#define TCP_STATES CONN_UDP /* states below are TCP's */

/*
 * Source and destination: the addresses of a packet, as they are in it. Of a
 * persistence template: the client's network, and what the service is found
 * by. It is the key of IPv6's tables.
 */
struct flow {
	union address src;
	union address dst;
	__be16 sport;
	__be16 dport;
	__u8 protocol; /* 0 in the template of a fwmark service */
	__u8 template; /* 1 in that of a template, FLOW_REPLIES in that of replies */
	__u8 family;   /* AF_INET, AF_INET6 */
	__u8 pad;
};

/* In struct flow.template: the server's flow, by which a connection's replies are found
 * (replies.h). No packet has it. */
#define FLOW_REPLIES 2

/* The same of IPv4. */
struct flow4 {
	__be32 src;
	__be32 dst;
	__be16 sport;
	__be16 dport;
	__u8 protocol;
	__u8 template;
	__u8 pad[2];
};

enum conn_flag {
	CONN_INACTIVE = 0x1, /* counted in load.inactive */
	CONN_DEAD = 0x2,     /* over: being removed */
	/* A template one of whose connections was real; a connection that was answered. */
	CONN_ASSURED = 0x4,
	CONN_UNPROVEN = 0x8, /* nothing has shown yet that its client exists (proof.h) */
	CONN_EXPIRE = 0x8,   /* its earlier name, never used: upgrades compare names */
	CONN_HAIRPIN = 0x10, /* the server takes the director for its client */
	/* a reply was seen, though the director need not see any (Linux: no
	 * IP_VS_CONN_F_NOOUTPUT). */
	CONN_REPLIED = 0x20,
	CONN_LISTED = 0x40,  /* its replies have an entry (replies.h) */
	CONN_ADOPTED = 0x80, /* an upgrade entered it */
	CONN_LEFT = 0x80,    /* of a dead one, which is still counted: the sweep removes it */
};

/*
 * A connection, under the flow of its client's packets. If the server's
 * replies come through the director, replies.h leads here from their flow. The
 * server's address is in the servers table: an id stays its
 * server's for as long as there are connections.
 *
 * As in Linux, a persistence template lies in the same table; and so do entries of replies.
 */
struct conn {
	__u64 expires; /* CLOCK_MONOTONIC [ns], moved by packets; and the incarnation
			  (table/entry.h) */
	/* One word, which packets are forwarded by: */
	__be16 port;      /* of the server */
	__u8 state;       /* enum conn_state */
	__u8 flags;       /* enum conn_flag */
	__u8 template;    /* enum template_kind, what controls it */
	__u8 forward;     /* enum forward */
	__u16 in_packets; /* from the client: packets_after */
	union {
		__u32 server; /* id */
		__u32 of;     /* TEMPLATE_REPLIES: the index of their connection's entry, */
	};
	union {
		__u32 fwmark;      /* of its template; TEMPLATE_CALL: a number */
		__u32 controlled;  /* of a template: its connections */
		__u32 incarnation; /* TEMPLATE_REPLIES: and the incarnation of that */
	};
	union {
		__be32 netmask; /* of a connection's template */
		__u32 timeout;  /* of a template [s] */
	};
	__u16 told_end; /* what backups know (told.h) */
	__u8 told;      /* likewise */
	__u8 pad;
	__u32 index;   /* of the entry */
	__u32 hash;    /* of its flow: the bits that say its bucket */
	__u32 next;    /* in a bucket's chain: the next one's index */
	__u32 replies; /* of a connection: the index of its replies' entry; 0: none */
};

/* An entry: the connection, and its flow, which is written first. */
struct conn4 {
	struct conn conn;
	struct flow4 flow;
};

struct conn6 {
	struct conn conn;
	struct flow flow;
};

#define LINE_BYTES 64 /* a cache line */

_Static_assert(sizeof(struct conn4) == LINE_BYTES && sizeof(struct conn6) <= 2 * LINE_BYTES,
	       "an entry takes one cache line, or two of IPv6");

/*
 * Memory of the connection table (table/blocks.h). An index is a block's number and a line in it:
 * 24 bits, beside which a tag fits.
 */
#define BLOCK_BYTES 4032
#define BLOCK_LINES 62 /* whole ones, wherever an array's first element begins */
#define BLOCK_ENTRIES (BLOCK_LINES - 1)
#define PAGE_BLOCKS 8 /* 32 KB with the array's head */
#define INDEX_LINES 64
#define INDEX_BITS 24
#define INDEX_MASK ((1U << INDEX_BITS) - 1)
#define MAX_BLOCKS (1U << (INDEX_BITS - 6))
#define SPARE_FIRST (MAX_BLOCKS / 2)
#define MAX_SPARE (MAX_BLOCKS / 2)
#define MAX_BUCKET_BLOCKS (MAX_BLOCKS / 6)
#define NO_BLOCK 0xffffffffU
#define BUCKETS_BIT 5
#define BUCKETS_LEAST (1U << BUCKETS_BIT)

enum block_kind { BLOCK_NONE, BLOCK_ENTRIES4, BLOCK_ENTRIES6, BLOCK_BUCKETS, BLOCK_RETIRED };

/* The head of a block. */
struct block_head {
	__u64 none; /* where an entry has its end: it has none */
	__u64 free; /* lines, a bit each; bit 0: no CPU owns the block */
	enum block_kind kind;
	__u32 bucket; /* BLOCK_BUCKETS: the first */
};

struct block {
	union {
		struct block_head head;
		__u8 bytes[BLOCK_BYTES];
	};
};

/* Which blocks there are. Words that different CPUs write are in cache lines of their own. */
struct block_table {
	__u32 taken; /* blocks in pages that are in use, or were: those below */
	__u32 pad2[15];
	__u32 spare; /* likewise, of the hash */
	__u32 pad3[15];
	__u32 zero;      /* 0 (unknown_zero) */
	__u32 reshaping; /* a CPU changes the number of buckets */
	__u32 free;      /* lines, when the sweep last came by all blocks */
	__u32 used;      /* likewise, by entries */
	__u32 counting;  /* free lines, of the pass that is under way */
	__u32 counted;   /* used ones */
	__u32 family[2]; /* blocks that have entries of IPv4, of IPv6 */
	__u32 pad4[8];
};

/* Which blocks of a family may have free lines, a bit each; which words have such a bit; and which
 * of those have one. */
#define ROOM_WORDS (MAX_BLOCKS / 64)
#define ROOM_SUMS (ROOM_WORDS / 64)

struct room_bits {
	__u64 top; /* ROOM_SUMS bits */
	__u64 pad[7];
	__u64 sum[ROOM_SUMS];
	__u64 word[ROOM_WORDS];
};

_Static_assert(ROOM_SUMS == 64, "a word has a bit for each of the sums");

struct room_table {
	struct room_bits family[2];
};

/* What a process says of blocks. */
struct page_table {
	__u32 made;  /* blocks in pages */
	__u32 bound; /* blocks that may be in use */
	__u32 shift; /* from an array's first element to a cache line [bytes] */
	__u32 none;  /* id of the page in place of those that were taken away; 0: there is none */
};

/* What words of the connection table mean, where types do not tell: an upgrade refuses a table of
 * another format. Counts up with each change. */
enum table_format { TABLE_FORMAT = 2 };

/* How many buckets there are. */
struct shape_table {
	__u64 geometry; /* their number; in the upper half the mask for a hash's bits */
	__u32 most;     /* the greatest number since blocks were last given back */
	enum table_format format;
	__u32 pad[12];
};

/* The secret of the hash of flows. */
struct flow_secret {
	__u32 summand[10];
};

/* A flow as key of the table of its family, which is known when this is compiled, as it
 * is in all functions that have it as an argument. */
union conn_key {
	struct flow4 four;
	struct flow six;
	__u64 word[5];
};

enum search_step { SEARCH_BEGIN, SEARCH_SLOTS, SEARCH_CHAIN };

/* A search of the connection table (table/entry.h). */
struct search {
	union conn_key key; /* of IPv4, with zeros behind it */
	__u64 slots;        /* that have the tag, and are still to be looked at */
	__u64 geometry;
	__u32 hash;
	__u32 bucket;
	__u32 control; /* of the bucket, at the beginning */
	__u32 at;      /* the next entry of the chain */
	__u32 before;  /* the one before what was found there; 0: none */
	__u32 found;   /* index; 0: none */
	__u16 chained; /* entries of the chain that were looked at */
	__u8 step;     /* enum search_step */
	__u8 six;
	__u8 claims;
	__u8 claimed;
	__u8 pad[2];
};

struct search_at {
	struct search *search;
};

/* The block that a CPU takes entries from. */
struct hand {
	__u32 taken;  /* its number and 1 more; 0: none */
	__u32 cursor; /* the block behind the last one that was looked at */
	__u32 noted;  /* likewise, of noted ones: a number */
};

#define CALL_ID_MAX 255 /* [bytes] IP_VS_PEDATA_MAXLEN */

/* The protocol in the key of a call's template. */
#define CALL_PROTOCOL 0xff

/*
 * What a template of the SIP engine stands for: the clients and the service, as
 * in the key of a template without an engine, and the Call-ID. The connection
 * table has it under a number: a flow with CALL_PROTOCOL, the number as source,
 * and nothing else.
 */
struct call {
	struct flow clients;
	__u8 length;          /* of the Call-ID [bytes] */
	__u8 id[CALL_ID_MAX]; /* 0 behind its end */
};

#define MANY_PACKETS 9 /* so many, and drop_entry spares what is idle */

/* Key of a packet that comes in fragments. */
struct fragment_key {
	union address src;
	union address dst;
	__u32 id; /* as it stands in the packet */
	__u8 protocol;
	__u8 family;
	__u16 pad;
};

struct fragment {
	__u64 expires; /* [ns] */
	struct flow client;
	__u32 direction; /* enum direction */
	__u32 server;    /* of a packet without a connection, else NO_SERVER */
};

/* A device with an XDP program, by which others' packets may leave, too. */
struct xdp_device {
	__u32 ifindex; /* 0: none */
	__u8 mac[6];   /* of packets for this machine */
	__u8 turns;    /* XDP_TX may send a packet back by it */
	__u8 pad;
};

/* Where replies have to come from, if not from a device of servers alone (reply_side.h). */
enum reply_filter {
	FILTER_NOTHING,
	FILTER_DEVICE,   /* the one that the route to the server leads to */
	FILTER_NEXT_HOP, /* and the hardware address of the next hop there */
};

/* What the synchronization rule is applied to (sync.h). */
enum syncing {
	SYNCING_NOTHING,
	SYNCING_ALL,
	/* Every process that tells backups is told of openings, changes of state and ends
	 * (follow.h), and reads the table for what has neither: of connections it knows. */
	SYNCING_TEMPLATES,
};

/* Timeouts by enum conn_state [ns], and switches; user space writes it. */
struct settings {
	__u64 timeout[32];
	__u32 services;   /* ids in use are below this */
	__u32 servers;    /* likewise */
	__u32 fwmarks;    /* services of a mark: look for them */
	__u32 port_zeros; /* services of every port: look for them */
	__u32 ftps;       /* services of the FTP port: they take others too */
	__u32 in_use4;    /* of IPv4; without any, nothing is followed */
	__u32 in_use6;
	__u32 mark_rules; /* rules in the marks table */
	/* Linux's net.ipv4.vs.*, by their names there */
	__u32 conn_reuse_mode;
	__u32 expire_nodest_conn;
	__u32 expire_quiescent_template;
	__u32 sloppy_tcp;
	__u32 sloppy_sctp;
	/* ours: what Linux has no remedy for; 0: as Linux */
	__u32 hash_fallback;
	__u32 drain_timeout; /* [s] */
	__u32 hairpin;
	/* Linux's again: enum defence_mode, and the rate of drop_packet */
	__u32 secure_tcp;
	__u32 drop_entry;
	__u32 drop_packet;
	__u32 am_droprate;
	/* ours again */
	__u32 syn_defence;        /* enum defence_mode */
	__u32 half_open_limit;    /* more half-open connections are an attack; 0: none is */
	__u32 client_share;       /* of the room, that one client may have [1/1000]; 0: all */
	__u32 room[2];            /* for connections, of IPv4 and of IPv6 */
	struct xdp_device xdp[2]; /* the clients' and the servers', in mode xdp */
	__u32 one_device;         /* is both */
	__u32 reply_filter;       /* enum reply_filter */
	__u32 engines;            /* services with an engine */
	__u32 draining;           /* servers that are draining */
	__u32 slow_starts;        /* servers that have a slow start */
	__u32 steering;           /* there may be check_flows */
	/* Linux's again, of synchronization; and whether anybody tells backups. */
	__u32 sync_threshold;
	__u32 sync_period;
	__u32 sync_refresh_period; /* [s] */
	__u32 sync_retries;
	__u32 sync_persist_mode;
	__u32 sync_version;
	__u32 sync_ports;
	__u32 sync_qlen_max;
	__u32 sync_sock_size; /* [bytes] */
	__u32 syncing;        /* enum syncing */
	__u32 backup_only;
	/* The role of a backup runs, or was killed, and backup_only is set: packets are left to
	 * the whole path, which asks whether it runs (stands_by of failover.h). */
	__u32 standby;
	/* The table has had all that the other director of a pair has, replicas, too: what is there
	 * and not here has ended. */
	__u32 replicated;
	/* Of what user space writes: odd while a command writes to it, and after
	 * one was killed at that; even, and another one, after each change. */
	__u64 generation;
	/* An upgrade (upgrade.h): the next build is to go on; and in that build
	 * until the connections are there. */
	__u32 successor;
	__u32 adopting;
};

#define ADDRESS_GROUPS 64

/*
 * What the process that elects a master among directors writes (failover.h), by number.
 * Programs write only FAILOVER_WORKS, and only 0. Times are of CLOCK_BOOTTIME [ns], which goes
 * on while the machine is suspended; 0: none.
 */
enum failover_word {
	FAILOVER_GUARDS, /* there are guarded addresses */
	FAILOVER_WORKS,  /* the next three may have an effect until then */
	FAILOVER_GRACE,  /* packets of unknown connections are dropped until then */
	FAILOVER_HAND,   /* on some device they are sent to a peer until then */
	FAILOVER_PEERS,  /* there are other directors */
	FAILOVER_BACKUP, /* the role of a backup runs until then; its process writes it */
	FAILOVER_WORDS = 16,
};

/* Where packets of unknown connections that came in by a device are sent. */
struct hand_over {
	__u64 until; /* CLOCK_BOOTTIME [ns] */
	__u8 mac[6]; /* the peer's hardware address */
	__u8 pad[2];
};

/* A hardware address on the link that a device leads to. */
struct link_address {
	__u32 ifindex;
	__u8 mac[6];
	__u8 pad[2];
};

#define CONN_RECORDS 256 /* at a time */

/* What became of a record. */
enum record_result {
	RECORD_NONE,
	RECORD_ENTERED,
	RECORD_EXISTS,      /* its flow has an entry already */
	RECORD_NO_ROOM,     /* for the entry, or that of its replies */
	RECORD_NO_SERVER,   /* that is in a service's list */
	RECORD_NO_TEMPLATE, /* to its server, which would control it */
	RECORD_NO_HAIRPIN,  /* another connection has the director's port */
	RECORD_UPDATED,     /* a master told of an entry that there is */
	RECORD_OUTDATED,    /* likewise, of an earlier connection of its flow, which is over */
	RECORD_KEPT,        /* RECORD_ENDED: packets came here, or there is no such entry */
	RECORD_DIFFERENT,   /* RECORD_SHARED: the entry here has another server, and stays */
	RECORD_REPLACED,    /* likewise, and a packet came here, but a later one there */
};

/* What a record is for. */
enum record_kind {
	RECORD_NEW,     /* to enter what is not there */
	RECORD_TOLD,    /* a master of Linux told it: what is there is changed */
	RECORD_REPLICA, /* likewise, a director of this kind */
	RECORD_ENDED,   /* likewise: the entry ends, unless packets came here */
	RECORD_SHARED,  /* RECORD_REPLICA of a director of a pair: packets may come to both */
	RECORD_COPY,    /* likewise, of an entry that is a replica there: what is here stays */
};

/* A connection or template that user space enters, for adopt_conns and import_conns:
 * as in struct flow and struct conn. */
struct conn_record {
	struct flow flow; /* family 0: none. Of a call's template: that of struct call */
	__u32 server;
	__u32 fwmark;
	__u64 expires;
	__be16 port;
	__u8 state;
	__u8 flags;
	__u8 template;
	__u8 forward;
	__u16 in_packets;
	__u32 netmask;
	enum record_result result; /* the program's */
	__be16 hairpin_port;       /* the director's, of a hairpin */
	__u8 kind;                 /* enum record_kind */
	__u8 told;                 /* an upgrade's: the bits that told.h has in a number */
	__u32 idle;                /* since its last packet [ms]; RECORD_REPLICA, _ENDED, _SHARED */
	union address hairpin;     /* likewise, its address */
	__u16 told_end;            /* an upgrade's: as in struct conn */
	__u8 known;                /* RECORD_SHARED: what is not here is not entered */
	__u8 pad[5];
};

/* Where packets enter the data plane: the number is part of what one build hands
 * over to the next. */
enum entry {
	ENTRY_CLIENT = 0,
	ENTRY_SERVER = 1,
	ENTRY_LOCAL = 2,
	ENTRIES = 8,
	ENTRY_MORE = ENTRIES, /* none: where packets go on in the same build */
};

/* When a defence works. Linux's 2, which is 1 at work, is never written here. */
enum defence_mode {
	DEFENCE_NEVER = 0,
	DEFENCE_AUTOMATIC = 1, /* while there is no room for connections */
	DEFENCE_ALWAYS = 3,
};

/* What the defences remember. */
struct defence {
	__u64 until;              /* the automatic ones work [ns] */
	__u64 full_since;         /* when it was first so, the last time [ns] */
	__s32 packets;            /* of drop_packet: packets to the next drop, that included */
	__s32 idle[MANY_PACKETS]; /* likewise of drop_entry, by conn.in_packets */
};

/* What became of SYNs, by CPU: only ever counted up. */
struct handshake_counts {
	__u64 opened;     /* half-open connections that began */
	__u64 answered;   /* and went on */
	__u64 challenged; /* SYNs that were answered by a question */
	__u64 proofs;     /* right answers */
	__u64 displaced;  /* unproven entries that ended for others, in a full table */
};

/* The unproven entries of a service, by service id (crowd.h). */
struct crowd {
	__u32 round; /* in which they were last counted */
	__u32 unproven;
};

/* Likewise of a family, as of the last round and in the one that is under way. */
struct crowding {
	__u32 tcp;     /* of TCP, of all services */
	__u32 service; /* id of the one that has most of other protocols */
	__u32 most;    /* and how many; 0: there are none */
	__u32 pad;
};

/* Whether there is a SYN flood, as judged at each tick. */
struct attack {
	__u64 since;     /* CLOCK_MONOTONIC [ns]; 0: there is none */
	__u64 began;     /* the last one; 0: there was none */
	__u64 ended;     /* likewise */
	__u64 suspected; /* when it last looked like one */
	__u64 half_open; /* how many there may be, << HALF_OPEN_SHIFT */
	__u64 rate;      /* challenges per second, << RATE_SHIFT */
	__u64 lacking;   /* of them without an answer, likewise */
	struct handshake_counts last;
	__u32 number; /* of attacks so far */
	__u32 round;  /* of counting unproven entries */
	__u32 server; /* the id that it goes on with */
	__u32 pad;
	struct crowding crowds[2]; /* of the last round: IPv4, IPv6 */
	struct crowding counting[2];
};

#define HALF_OPEN_SHIFT 10
#define RATE_SHIFT 8

/* A client's network, an IPv4 address or an IPv6 /64, that has answered a challenge. */
struct proof {
	__u64 expires; /* [ns] */
	__s64 credit;  /* connections that it is good for */
};

/* SipHash's key. */
struct secret {
	__u64 word[2];
};

/* lblc and lblcr remember a destination's servers under this. */
struct locality_key {
	union address addr;
	__u32 service;
	__u32 incarnation; /* of it */
};

#define LBLCR_SET 64 /* servers remembered for one destination */

struct locality {
	__u64 last_use; /* [ns] */
	__u32 server;
};

struct locality_set {
	__u64 last_use; /* [ns] */
	__u64 last_change;
	__u32 count;
	__u32 server[LBLCR_SET]; /* oldest first */
};

#define HASH_BUCKETS 256

/* The hash table of a dh or sh service. */
struct buckets {
	__u32 server[HASH_BUCKETS];
};

#define MAGLEV_SIZE 4093

/* The hash table of an mh service. */
struct maglev {
	__u32 server[MAGLEV_SIZE];
};

/* A server's place in its permutation while mh fills a table. */
struct maglev_turn {
	__u32 next;
	__u32 skip;
	__u32 turns; /* entries it takes in a row */
};

/* How much the director may still send of its own (limit.h). */
struct allowance {
	__u64 spent; /* up to this time [ns] */
};

/* Key of the marks table: packets to this prefix carry the mark. */
struct mark_key {
	__u32 prefix_len; /* of addr [bits], 96 more than IPv4's */
	union address addr;
};

enum change_event {
	CHANGE_INIT = 1, /* the scheduler was chosen for the service */
	CHANGE_DONE,     /* the service went or got another scheduler */
	CHANGE_ADD,      /* the servers from `position` on came, one by one */
	CHANGE_DELETE,   /* the server at `position` is gone */
	CHANGE_UPDATE,   /* the weight of the server at `position` changed */
	CHANGE_REOPEN,   /* the server with id `position` is not overloaded */
	CHANGE_UNKNOWN,  /* whatever: a command was killed before it told */
};

/* Argument of the table_changed program. */
struct change {
	struct service service; /* after the change */
	enum change_event event;
	__u32 position; /* in order of addition; CHANGE_DELETE: before it */
	__s32 error;    /* of the scheduler, if the kernel refused its table; else 0 */
	__u32 pad;
};

/* What the auditor found and the repair program corrects (repair.h). Each is
 * tested once more in the kernel, where the tables change meanwhile. */
enum repair_kind {
	REPAIR_COUNTS,     /* adds to what `server` counts */
	REPAIR_CONTROLLED, /* adds to what the template of `flow`, to `server`, controls */
	REPAIR_REMOVE,     /* entry `number` of `flow`, to `server` */
	REPAIR_CLAIM,      /* ends that of bucket `number`, whose control word is `from` */
	REPAIR_SLOT,       /* empties slot `from` of bucket `number`, which has `server` */
	REPAIR_ENTER,      /* puts entry `number` of `flow` into its bucket */
	REPAIR_LINE,       /* line `number` is free as its entry says, which ends at `expires` */
	REPAIR_REPLIES,    /* enters that of the replies of `number`, the connection of `flow` */
};

enum repair_result {
	REPAIR_DONE,
	REPAIR_CHANGED, /* the table is no longer as it was found */
	REPAIR_FAILED,  /* no such object */
};

struct repair {
	struct flow flow;
	__u64 expires; /* of the entry, as it was found */
	enum repair_kind kind;
	__u32 number;
	__u32 from;
	__u32 server;
	/* differences: */
	__s32 active;
	__s32 inactive;
	__s32 persistent;
	__s32 controlled;
	__s32 unproven;
};

/* Why a packet was not simply forwarded. Names are read from BTF: the word
 * after REASON_ is what users see. */
enum reason {
	REASON_PASS_NOT_IP,
	REASON_PASS_NOT_OURS,
	REASON_PASS_TRUNCATED,
	REASON_PASS_MAPPED_ADDRESS,
	REASON_PASS_EXTENSION_HEADER,
	REASON_PASS_PROTOCOL,
	REASON_PASS_FRAGMENT,
	REASON_PASS_ICMP,
	REASON_PASS_HAIRPIN_ICMP,
	REASON_PASS_LOCAL,
	REASON_PASS_NO_SERVICE,
	REASON_PASS_NO_CONNECTION,
	REASON_PASS_FTP_DATA,
	REASON_REFUSED_NO_SERVER,
	REASON_REFUSED_TTL_EXCEEDED,
	REASON_REFUSED_TOO_BIG,
	REASON_REFUSED_NO_ROUTE,
	REASON_DROP_SERVER_DELETED,
	REASON_DROP_TABLE_FULL,
	REASON_DROP_RATE_LIMIT,
	REASON_DROP_FORWARDING_OFF,
	REASON_DROP_TOO_BIG_NO_DF,
	REASON_DROP_FORWARD_METHOD,
	REASON_DROP_NO_TUNNEL_SOURCE,
	REASON_DROP_NO_HAIRPIN,
	REASON_DROP_REWRITE,
	REASON_DROP_SCTP_FRAGMENT,
	REASON_PASS_MARTIAN,
	REASON_DROP_NO_NEIGHBOUR,
	REASON_DROP_DEFENCE,
	REASON_DROP_TO_LOOPBACK,
	REASON_DROP_CHALLENGED,
	REASON_DROP_PROOF,
	REASON_DROP_UNPROVEN,
	REASON_DROP_SERVICE_CHANGED,
	REASON_DROP_NO_CALL_ID,
	REASON_DROP_UPGRADE,
	REASON_REFUSED_DRAINED,
	REASON_DROP_CHECK_RETURNED,
	REASON_DROP_TAKEOVER,
	REASON_DROP_GUARDED,
	REASON_HANDED_TAKEOVER,
	REASON_PASS_FROM_PEER,
	REASON_PASS_BACKUP,
	REASON_DROP_ANSWER_LIMIT,
	REASON_PASS_IP_OPTIONS,
	REASON_DROP_REVERSE_PATH,
	REASON_DROP_CLIENT_SHARE,
	REASON_COUNT,
};

/* What happened to a packet in addition to forwarding: what tracers report. */
enum news {
	NEWS_ASIDE = 0x01,    /* passed to the stack, refused or dropped, for a reason */
	NEWS_OPENED = 0x02,   /* it opened a connection */
	NEWS_STATE = 0x04,    /* its connection's state changed */
	NEWS_CHOSEN = 0x08,   /* a scheduler was asked */
	NEWS_TEMPLATE = 0x10, /* a persistence template decided */
	NEWS_OUTDATED = 0x20, /* its flow's earlier connection is not used any more */
	NEWS_KNOWN = 0x40,    /* of a connection that there is (explain only) */
	NEWS_NOTED = 0x80,    /* its server is described as it was chosen */
};

/* A server as the scheduler saw it. */
struct contender {
	union address addr;
	__u32 id; /* NO_SERVER: none */
	__s32 weight;
	__u32 active;
	__u32 inactive;
	__u32 overloaded;
	__be16 port;
	__u8 forward; /* enum forward */
	__u8 pad;
};

/* What a tracer gets of a packet. */
struct trace_event {
	__u64 time;                 /* CLOCK_MONOTONIC [ns] */
	struct flow flow;           /* of the packet, as it came; family 0: not known */
	union address virtual;      /* where the client sends to */
	struct service_key service; /* family 0: of no service */
	struct contender server;    /* of the connection */
	struct contender runner_up; /* the one that it would have chosen instead */
	__u32 servers;              /* that the service has */
	__be32 netmask;             /* of the service's persistence */
	__u32 ifindex;
	__u32 mark;
	__u32 length; /* of the packet [bytes] */
	__be16 virtual_port;
	__u8 news;        /* enum news */
	__u8 reason;      /* enum reason, of NEWS_ASIDE */
	__u8 tcp_bits;    /* enum tcp_bit */
	__u8 from_server; /* the packet is a reply */
	__u8 scheduler;   /* enum scheduler */
	__u8 was;         /* enum conn_state, before a NEWS_STATE */
	__u8 state;       /* and after */
	__u8 pad[3];
};

/* What the explain program says of a flow. */
struct explanation {
	struct trace_event event;
	__u64 now;
	__u64 expires;           /* of the flow's connection [ns]; 0: there is none */
	__u64 template_expires;  /* of the template that decides; 0: there is none */
	__u32 controlled;        /* connections of that template */
	struct contender server; /* of the flow's connection */
	__be16 port;             /* its port in that connection */
	__u8 forward;            /* enum forward, likewise */
	__u8 state;              /* enum conn_state */
};

/* Who listens to events, with a lease. */
enum listeners {
	LISTENERS_TRACE,
	LISTENERS_FOLLOW,
	LISTENERS,
};

#define TRACERS 8 /* at once */

/* One who traces, and what of. Its events come by the ring of its number. */
struct tracer {
	__u64 until;            /* when its lease ends [ns]; 0: not in use */
	__u64 reasons;          /* bits by enum reason */
	__u64 reasons_services; /* likewise, of packets to services */
	union address client;   /* and its network */
	union address client_mask;
	union address virtual; /* 0: any */
	union address server;  /* likewise */
	__u32 fwmark;          /* likewise */
	__u32 owner;           /* a number of its own */
	__be16 port;           /* of the virtual service; 0: any */
	__u8 news;             /* enum news: any of these */
	__u8 pad[5];
};

/* What happens to an entry of the connection table: what followers get. */
enum follow_kind {
	FOLLOW_OPEN = 0x1,
	FOLLOW_STATE = 0x2,
	FOLLOW_CLOSE = 0x4,
	FOLLOW_TELL = 0x8, /* the synchronization rule selects the entry (sync.h) */
};

/* An entry as it was when the event was reported (follow.h). */
struct follow_event {
	__u64 time;                 /* CLOCK_MONOTONIC [ns] */
	__u64 expires;              /* of the entry [ns] */
	struct flow flow;           /* the client's, or a template's key */
	union address addr;         /* of the server */
	struct service_key service; /* of the server */
	__u32 server;               /* id */
	__u32 service_id;           /* of a server that was deleted: its last one */
	/* The rest as in struct conn. */
	union {
		__u32 fwmark;
		__u32 controlled;
	};
	union {
		__be32 netmask;
		__u32 timeout;
	};
	__be16 port;
	__u8 state;
	__u8 flags;
	__u8 template;
	__u8 forward;
	__u16 in_packets;
	__u8 kind;    /* enum follow_kind */
	__u8 was;     /* enum conn_state, before a FOLLOW_STATE */
	__u8 over;    /* the entry was dead already: its end may have been reported before */
	__u8 replica; /* it is as another director told (told_untouched) */
	__u8 pad[2];
	__be16 server_port; /* of the server, as its service lists it */
};

/* The end of a call's template. */
struct follow_call_event {
	struct follow_event event;
	struct call call;
};

#define FOLLOWERS 4 /* at once */

/* The entries of the connection table that a follower asks for. */
enum follow_entries { FOLLOW_ALL, FOLLOW_CONNECTIONS, FOLLOW_TEMPLATES };

/* One who follows, and what. Its events come by the ring of its number. */
struct follower {
	__u64 until;                /* when its lease ends [ns]; 0: not in use */
	struct service_key service; /* family 0: any; or a mark, or address and port */
	__u32 owner;                /* a number of its own */
	__u8 kinds;                 /* enum follow_kind: any of these */
	__u8 protocol;              /* 0: any */
	__u8 entries;               /* enum follow_entries */
	__u8 every_port;            /* of the service's address */
};

#endif
