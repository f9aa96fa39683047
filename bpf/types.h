/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything the data plane shares with user space: keys, values, numbers.
 * bpf2go turns the types named in internal/bpfobj into Go types, so a field
 * added here appears there after `make generate`.
 *
 * Addresses are 16 bytes in network order, IPv4 as ::ffff:a.b.c.d, so that
 * code and tables serve both families; only the connection tables have a map
 * for each, because there the key's size is most of the memory.
 */
#ifndef IMBANG_TYPES_H
#define IMBANG_TYPES_H

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

/* The numbers are part of the pinned tables: append, never renumber. */
enum scheduler {
	SCHED_NONE = 0,
	SCHED_RR = 1,
	SCHED_WRR = 2,
	SCHED_LC = 3,
	SCHED_WLC = 4,
	SCHED_LBLC = 5,
	SCHED_LBLCR = 6,
	SCHED_DH = 7,
	SCHED_SH = 8,
	SCHED_SED = 9,
	SCHED_NQ = 10,
	SCHED_FO = 11,
	SCHED_OVF = 12,
	SCHED_MH = 13,
	SCHED_TWOS = 14,
};

/* What a persistence template stands for, besides the clients: the value of
 * struct service and struct conn. */
enum template_kind {
	TEMPLATE_NONE,    /* the service is not persistent */
	TEMPLATE_PORT,    /* protocol, virtual address and port */
	TEMPLATE_ADDRESS, /* protocol and virtual address: port 0, and FTP */
	TEMPLATE_MARK,    /* the firewall mark */
};

/*
 * A service as the packet path sees it. User space replaces the whole value
 * on each change, so that a packet sees one state or the other.
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
	__u16 pad;
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
	/* rr, wrr: the position of the last pick in the low half (LIST_HEAD:
	 * none yet), wrr's current weight in the high half. One word, so that
	 * compare-and-swap moves both. */
	__u64 cursor;
	__u32 max_weight; /* wrr: the highest weight less (step - 1) */
	__u32 step;       /* wrr: greatest common divisor of the weights */
	struct tree tree;
	/* Who changes nodes of the tree: how many in the low half, and how often
	 * one more came in the high half. */
	__u64 climbers;
};

enum server_flag {
	SERVER_AVAILABLE = 0x1, /* in its service's list */
	SERVER_FRONTS = 0x2,    /* `fronts` names it for its address and port */
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
	__u64 quiescent;          /* since when its weight is 0: CLOCK_MONOTONIC [ns] */
	__s32 weight;             /* 0: quiescent */
	__s32 last_weight;        /* the weight before it was made quiescent */
	__u32 upper;              /* connection thresholds, 0: none */
	__u32 lower;
	__u32 service; /* id of the owner while available */
	__be16 port;   /* 0: as the client asked */
	__u16 tunnel_port;
	__u16 tunnel_flags;
	__u16 tunnel_type;
	enum forward forward;
	enum server_flag flags;
};

/* A server's address and port, in one protocol. */
struct endpoint {
	union address addr;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* The service that such an address and port serves: its server's owner. */
struct front {
	__u32 server; /* id */
	__u32 shared; /* kernel: other services' connections came to it, too */
};

/* The connections of a server, by server id. Written by the kernel only,
 * but for the overload flag when thresholds change. */
struct load {
	__u32 active;
	__u32 inactive;
	__u32 persistent;
	__u32 overloaded; /* reached its upper threshold */
	/* For the tree, made known by edits: */
	__u32 position; /* in its service's list, in order of addition */
	__s32 weight;
};

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
 * Who sends to whom: the addresses of a packet, as they stand in it. Of a
 * persistence template: the client's network, and what the service is found
 * by. It is the key of IPv6's tables.
 */
struct flow {
	union address src;
	union address dst;
	__be16 sport;
	__be16 dport;
	__u8 protocol; /* 0 in the template of a fwmark service */
	__u8 template; /* 1 in that of a template */
	__u8 family;   /* AF_INET, AF_INET6 */
	__u8 pad;
};

/* The same of IPv4, as key and value of its tables. */
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
	CONN_DEAD = 0x2,     /* no longer counted: being removed */
	CONN_ASSURED = 0x4,  /* a template one of whose connections was real */
	CONN_EXPIRE = 0x8,   /* ends when the wheel comes, whatever passes */
	CONN_HAIRPIN = 0x10, /* the server takes the director for its client */
	/* An answer was seen, though the director need not see any (Linux: no
	 * IP_VS_CONN_F_NOOUTPUT). */
	CONN_ANSWERED = 0x20,
	CONN_LISTED = 0x40, /* the reverse table has an entry of it */
};

/*
 * A connection, under the flow of its client's packets. If the server's
 * answers come through the director, answers.h leads here from their flow. The
 * server's address is in the servers table: an id stays its
 * server's for as long as there are connections.
 *
 * As in Linux, a persistence template lies in the same table.
 */
struct conn {
	__u64 expires;             /* CLOCK_MONOTONIC [ns], moved by each packet */
	__u32 tick;                /* of its appointment on the wheel */
	__u32 number;              /* of that appointment */
	struct bpf_spin_lock lock; /* of state and flags */
	__u32 server;              /* id */
	__be16 port;               /* of the server */
	__u8 state;                /* enum conn_state */
	__u8 flags;                /* enum conn_flag */
	__u8 template;             /* enum template_kind, what controls it */
	__u8 forward;              /* enum forward */
	__u8 in_packets;           /* from the client, MANY_PACKETS at most */
	__u8 pad;
	union {
		__u32 fwmark;     /* of a connection's template */
		__u32 controlled; /* of a template: its connections */
	};
	union {
		__be32 netmask; /* of a connection's template */
		__u32 timeout;  /* of a template [s] */
	};
};

#define MANY_PACKETS 9 /* so many, and drop_entry spares what is idle */

#define WHEEL_SLOTS 2048 /* of 67 ms: 137 s, half of which is used */

#define APPOINTMENTS (1 << 23) /* at most, in the list of a slot */

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

/*
 * Appointments, by number: flows that want to be looked at, in the lists of the
 * wheel's slots, or free ones in a list of their own. Numbers count from 1; 0
 * ends a list.
 */
struct appointment4 {
	__u32 next;
	struct flow4 flow;
};

struct appointment6 {
	__u32 next;
	struct flow flow;
};

/* A slot of the wheel: the numbers of its first appointments. */
struct wheel_slot {
	__u32 first4;
	__u32 first6;
};

/* Appointments that are free: those in a list, and those from `fresh` on, which
 * never were taken. */
struct free_appointments {
	/* The first of the list in the low half. In the high half how often one
	 * was taken, so that compare-and-swap finds a list that has become
	 * another one behind the same first (ABA). */
	__u64 first;
	__u64 fresh;
	__u64 pad[6]; /* a cache line of its own */
};

/* A device with an XDP program, by which others' packets may leave, too. */
struct xdp_device {
	__u32 ifindex; /* 0: none */
	__u8 mac[6];   /* of packets for this machine */
	__u8 turns;    /* XDP_TX may send a packet back by it */
	__u8 pad;
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
	__u32 editing;    /* a command is at work, or was killed at it */
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
	struct xdp_device xdp[2]; /* the clients' and the servers', in mode xdp */
	__u32 one_device;         /* is both */
	__u32 pad;
};

/* When a defence works. Linux's 2, which is 1 at work, nobody writes here. */
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
};

/* Whether there is a SYN flood, as judged at each tick of the wheel. */
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
	__u32 pad;
};

#define HALF_OPEN_SHIFT 10
#define RATE_SHIFT 8

/* A client that has answered a challenge. */
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

/* What a client may still be told by ICMP: time saved up [ns]. */
struct allowance {
	__u64 last;
	__u64 saved;
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
	REASON_COUNT,
};

/* What happened to a packet besides being forwarded: what tracers hear of. */
enum news {
	NEWS_ASIDE = 0x01,    /* passed by, refused or dropped, for a reason */
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

/* What a tracer is told of a packet. */
struct trace_event {
	__u64 time;                 /* CLOCK_MONOTONIC [ns] */
	struct flow flow;           /* of the packet, as it came; family 0: not known */
	union address virtual;      /* where the client sends to */
	struct service_key service; /* family 0: of no service */
	struct contender server;    /* of the connection */
	struct contender runner_up; /* whom the scheduler would have taken instead */
	__u32 servers;              /* that the service has */
	__be32 netmask;             /* of the service's persistence */
	__u32 ifindex;
	__u32 mark;
	__u32 length; /* of the packet [bytes] */
	__be16 virtual_port;
	__u8 news;        /* enum news */
	__u8 reason;      /* enum reason, of NEWS_ASIDE */
	__u8 tcp_bits;    /* enum tcp_bit */
	__u8 from_server; /* the packet is an answer */
	__u8 scheduler;   /* enum scheduler */
	__u8 was;         /* enum conn_state, before a NEWS_STATE */
	__u8 state;       /* and after */
	__u8 pad[3];
};

/* What the explain program says of a flow. */
struct answer {
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

#define TRACERS 8 /* at once */

/* One who traces, and what of. Its events come by the ring of its number. */
struct tracer {
	__u64 until;            /* when its lease ends [ns]; 0: nobody */
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

#endif
