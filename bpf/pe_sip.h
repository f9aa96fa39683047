/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The persistence engine for SIP over UDP: packets of a call, from one network,
 * stay with one server (ip_vs_pe_sip.c). The Call-ID is found as Linux finds it
 * (ct_sip_get_header and callid_len of nf_conntrack_sip.c), and refused where
 * Linux refuses it:
 *
 * 1. The header comes behind an end of line: CR, LF or CR LF. The first byte
 *    behind it is not looked at for another end.
 * 2. Its name is Call-ID, or i if no letter follows. Blanks, with one fold of
 *    the line, may stand before and behind the colon. A name without a colon,
 *    or before a line that is no fold, ends the search without a result.
 * 3. The value is a word, or two with an @ between. If it is neither, the search
 *    goes on: from where it last began, plus the value's offset in the payload.
 * 4. The line ends behind the value, which has CALL_ID_MAX bytes at most.
 */
#ifndef IMBANG_PE_SIP_H
#define IMBANG_PE_SIP_H

#include "kernel.h"
#include "maps.h"
#include "scratch.h"
#include "packet.h"
#include "template.h"

/* What the reader is at. Blanks before the colon and those behind it have the
 * same states in the same order, each with what follows them as fifth. */
enum sip_state {
	SIP_TEXT,      /* anything up to an end of line */
	SIP_LINE,      /* behind that: the LF of a CR LF, or as next */
	SIP_LINE_TEXT, /* the first byte of a line */
	SIP_COMPACT,   /* behind an i */
	SIP_NAME,      /* in Call-ID, of which `matched` bytes were there */
	SIP_BLANK,
	SIP_FOLD,      /* behind an end of line: its LF, or as next */
	SIP_FOLD_TEXT, /* a blank, which makes it a fold */
	SIP_BLANK_LAST,
	SIP_COLON,
	SIP_VALUE_BLANK,
	SIP_VALUE_FOLD,
	SIP_VALUE_FOLD_TEXT,
	SIP_VALUE_BLANK_LAST,
	SIP_VALUE,
	SIP_WORD,
	SIP_DOMAIN, /* the first byte behind an @ */
	SIP_DOMAIN_WORD,
};

/* Sets of bytes, a bit for each, in words of 64. Linux's letters are those of
 * Latin-1 (lib/ctype.c). */
#define SIP_WORD_0 0xd7ffefa600000000ULL /* !"%'()*+-./ 0-9 :<>? */
#define SIP_WORD_1 0x6fffffffbffffffeULL /* A-Z [\]_` a-z {}~ */
#define SIP_LETTERS_1 0x07fffffe07fffffeULL
#define SIP_LETTERS_3 0xff7fffffff7fffffULL

static __always_inline int sip_bit(__u64 set, __u8 byte)
{
	return set >> (byte & 63) & 1;
}

/* iswordc */
static __always_inline int sip_is_word(__u8 byte)
{
	switch (byte >> 6) {
	case 0:
		return sip_bit(SIP_WORD_0, byte);
	case 1:
		return sip_bit(SIP_WORD_1, byte);
	case 3:
		return sip_bit(SIP_LETTERS_3, byte);
	}
	return 0;
}

static __always_inline int sip_is_letter(__u8 byte)
{
	switch (byte >> 6) {
	case 1:
		return sip_bit(SIP_LETTERS_1, byte);
	case 3:
		return sip_bit(SIP_LETTERS_3, byte);
	}
	return 0;
}

static __always_inline int sip_is_blank(__u8 byte)
{
	return byte == ' ' || byte == '\t';
}

static __always_inline int sip_is_end(__u8 byte)
{
	return byte == '\r' || byte == '\n';
}

#define SIP_NAME_LENGTH 7

/* Whether a byte is the k-th of Call-ID. */
static __always_inline int sip_names(__u8 byte, __u32 k)
{
	__u8 lower = byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;

	return lower == (__u8)(0x0064692d6c6c6163ULL >> ((k & 7) * 8));
}

struct sip_reading {
	struct __sk_buff *skb;
	struct sip_reader *reader;
};

/* Makes the byte at hand readable: 0, or an error. */
static __always_inline int sip_load(const struct sip_reading *reading, struct sip_reader *r)
{
	__u32 from = r->at & ~(SIP_WINDOW - 1);

	if (r->loaded == from)
		return 0;
	/* Linux 6.1's verifier requires a length above 0. */
	if (r->limit - from < SIP_WINDOW)
		return bpf_skb_load_bytes(reading->skb, r->offset + r->at,
					  &r->window[r->at & (SIP_WINDOW - 1)], 1);
	r->loaded = from;
	return bpf_skb_load_bytes(reading->skb, r->offset + from, r->window, SIP_WINDOW);
}

/* Goes on to the next byte. */
static __always_inline long sip_take(struct sip_reader *r, __u8 byte, __u32 state)
{
	r->last = byte;
	r->at++;
	r->state = state;
	return 0;
}

/* Looks at the same byte again. */
static __always_inline long sip_turn(struct sip_reader *r, __u32 state)
{
	r->state = state;
	return 0;
}

static __always_inline long sip_keep(struct sip_reader *r, __u8 byte, __u32 state)
{
	if (r->matched < CALL_ID_MAX)
		r->call.id[r->matched] = byte;
	r->matched++;
	return sip_take(r, byte, state);
}

/* The search goes on behind a header without a value. */
static __always_inline long sip_again(struct sip_reader *r)
{
	r->from += r->value;
	if (r->at < r->from)
		r->at = r->from;
	return sip_turn(r, SIP_TEXT);
}

static __always_inline long sip_finish(struct sip_reader *r, __u8 byte)
{
	r->found = r->matched <= CALL_ID_MAX && sip_is_end(byte);
	r->call.length = r->matched;
	return 1;
}

/* The byte at hand; 1 ends the search. */
static long sip_step(__u32 i, struct sip_reading *reading)
{
	struct sip_reader *r = reading->reader;
	__u32 state = r->state;
	__u8 byte;

	if (r->at >= r->limit || sip_load(reading, r))
		return 1;
	byte = r->window[r->at & (SIP_WINDOW - 1)];
	switch (state) {
	case SIP_TEXT:
		return sip_take(r, byte, sip_is_end(byte) ? SIP_LINE : SIP_TEXT);
	case SIP_LINE:
	case SIP_FOLD:
	case SIP_VALUE_FOLD:
		if (byte == '\n' && r->last == '\r')
			return sip_take(r, byte, state + 1);
		return sip_turn(r, state + 1);
	case SIP_LINE_TEXT:
		r->matched = 1;
		if (sip_names(byte, 0))
			return sip_take(r, byte, SIP_NAME);
		return sip_take(r, byte, byte == 'i' || byte == 'I' ? SIP_COMPACT : SIP_TEXT);
	case SIP_COMPACT:
		return sip_turn(r, sip_is_letter(byte) ? SIP_TEXT : SIP_BLANK);
	case SIP_NAME:
		if (!sip_names(byte, r->matched))
			return sip_turn(r, SIP_TEXT);
		r->matched++;
		return sip_take(r, byte, r->matched == SIP_NAME_LENGTH ? SIP_BLANK : SIP_NAME);
	case SIP_BLANK:
	case SIP_VALUE_BLANK:
		if (sip_is_blank(byte))
			return sip_take(r, byte, state);
		if (sip_is_end(byte))
			return sip_take(r, byte, state + (SIP_FOLD - SIP_BLANK));
		return sip_turn(r, state + (SIP_COLON - SIP_BLANK));
	case SIP_FOLD_TEXT:
	case SIP_VALUE_FOLD_TEXT:
		return sip_is_blank(byte) ? sip_take(r, byte, state + 1) : 1;
	case SIP_BLANK_LAST:
	case SIP_VALUE_BLANK_LAST:
		if (sip_is_blank(byte))
			return sip_take(r, byte, state);
		return sip_turn(r, state + 1);
	case SIP_COLON:
		return byte == ':' ? sip_take(r, byte, SIP_VALUE_BLANK) : 1;
	case SIP_VALUE:
		r->value = r->at;
		r->matched = 0;
		__builtin_memset(r->call.id, 0, sizeof(r->call.id));
		return sip_turn(r, SIP_WORD);
	case SIP_WORD:
		if (sip_is_word(byte))
			return sip_keep(r, byte, SIP_WORD);
		if (!r->matched)
			return sip_again(r);
		return byte == '@' ? sip_keep(r, byte, SIP_DOMAIN) : sip_finish(r, byte);
	case SIP_DOMAIN:
		return sip_is_word(byte) ? sip_keep(r, byte, SIP_DOMAIN_WORD) : sip_again(r);
	case SIP_DOMAIN_WORD:
		return sip_is_word(byte) ? sip_keep(r, byte, SIP_DOMAIN_WORD) : sip_finish(r, byte);
	}
	return 1;
}

/* Steps for a byte, at most. */
#define SIP_STEPS 4

/* Reads the call of a packet, whose flow is the client's, into this CPU's reader: 0,
 * or an error if the packet has no Call-ID. */
__noinline int call_read(struct __sk_buff *skb, const struct packet *p, const struct service *svc)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	struct sip_reading reading = { .skb = skb };
	struct sip_reader *r;
	__u32 before;

	if (!room || !p || !svc || p->flow.protocol != IPPROTO_UDP)
		return -1;
	r = reading.reader = &room->sip;
	template_flow(&p->flow, svc->template, svc->netmask, svc->fwmark, &r->call.clients);
	r->offset = p->transport + sizeof(struct udphdr);
	before = r->offset - ETH_HEADER;
	r->limit = p->length > before ? p->length - before : 0;
	r->at = 0;
	r->from = 0;
	r->state = SIP_TEXT;
	r->found = 0;
	r->loaded = ~0U;
	bpf_loop(SIP_STEPS * r->limit, sip_step, &reading, 0);
	return r->found ? 0 : -1;
}

#endif
