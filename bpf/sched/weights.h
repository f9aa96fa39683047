/* SPDX-License-Identifier: GPL-2.0-only */
/* The greatest common divisor and the maximum of a service's weights, for wrr
 * and mh. */
#ifndef IMBANG_SCHED_WEIGHTS_H
#define IMBANG_SCHED_WEIGHTS_H

#include "contract.h"

struct weights {
	__u32 first; /* slot of the first server */
	__u32 max;
	__u32 step; /* greatest common divisor, 0 if no weight is above 0 */
};

struct division {
	__u32 a;
	__u32 b;
};

static long euclid(__u32 i, struct division *d)
{
	__u32 rest;

	if (!d->b)
		return 1;
	rest = d->a % d->b;
	d->a = d->b;
	d->b = rest;
	return 0;
}

static __always_inline struct server *weights_server(const struct weights *w, __u32 position)
{
	__u32 id = server_id_at(w->first, position);

	return server_of(id);
}

static __always_inline void weigh(struct weights *w, __s32 weight)
{
	struct division d;

	if (weight <= 0)
		return;
	if ((__u32)weight > w->max)
		w->max = weight;
	/* The step is 0 at first, which Linux 6.1's verifier would take for
	 * ever; the weight is never. */
	d.a = w->step;
	d.b = weight;
	/* Euclid's algorithm on 32 bits takes at most 47 divisions. */
	bpf_loop(48, euclid, &d, 0);
	w->step = d.a;
}

#endif
