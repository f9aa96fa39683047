/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every scheduler: X(NUMBER'S NAME, NAME, NUMBER). enum scheduler and all
 * switches are made of this; contract.h says what its header has to have. The
 * numbers are part of the pinned tables: append, never renumber.
 */
#ifndef IMBANG_SCHED_LIST_H
#define IMBANG_SCHED_LIST_H

/* Those that take the server that costs least: they have NAME_cost alone. */
#define SCHEDULERS_BY_COST(X) \
	X(LC, lc, 3)          \
	X(WLC, wlc, 4)        \
	X(SED, sed, 9)        \
	X(NQ, nq, 10)         \
	X(FO, fo, 11)         \
	X(OVF, ovf, 12)

/* Those with a NAME_pick of their own. */
#define SCHEDULERS_BY_PICK(X) \
	X(RR, rr, 1)          \
	X(WRR, wrr, 2)        \
	X(LBLC, lblc, 5)      \
	X(LBLCR, lblcr, 6)    \
	X(DH, dh, 7)          \
	X(SH, sh, 8)          \
	X(MH, mh, 13)         \
	X(TWOS, twos, 14)

#endif
