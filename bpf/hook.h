/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Points at which the test variant of the data plane (IMBANG_TEST) can be
 * stopped, and values that it can be given. The product has none of them: each
 * macro expands to nothing, or to its argument.
 *
 * HOOK(NAME) must not stand where a bpf_spin_lock is held: it is a call.
 */
#ifndef IMBANG_HOOK_H
#define IMBANG_HOOK_H

#ifdef IMBANG_TEST
#include "variant.h"
#else
#define HOOK(name) ((void)0)
#define TRIES(n) (n)              /* iterations of a retry loop */
#define VIRTUAL_TIME(real) (real) /* [ns] */
#define VIRTUAL_RANDOM(real) (real)
#define TIMERS_OFF 0
#define FAULT(map, change) 0L /* instead of an update or delete of a map: an error, or 0 */
/* A hook takes two of the 8 frames that the verifier allows: a function of its own
 * in the product may have to be part of its caller in the variant. It is global, so that
 * the verifier walks it once for all callers. */
#define FRAMELESS_IN_VARIANT __noinline
#endif

#endif
