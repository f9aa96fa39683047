/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Elements of hash maps are entered and deleted by these. The kernel may refuse either at
 * any time, whatever is in the map: -EBUSY (up to Linux 6.14) to a program that interrupted
 * a change of the same map on its CPU, -EDEADLK and -ETIMEDOUT (from 6.15) at the lock of a
 * bucket, -ENOMEM. So callers use the result. Only a cache may lose an element: that is
 * marked by (void).
 */
#ifndef IMBANG_ELEMENT_H
#define IMBANG_ELEMENT_H

#include "kernel.h"
#include "hook.h"

static __always_inline __attribute__((warn_unused_result)) long element_put(long rc)
{
	return rc;
}

/* An element that is not there needs no deletion. */
static __always_inline __attribute__((warn_unused_result)) long element_gone(long rc)
{
	return rc == -ENOENT ? 0 : rc;
}

/* Both: 0, or an error, and the map is as it was. */
#define map_update(map, key, value, flags) \
	element_put(FAULT(map, update) ?: bpf_map_update_elem(&map, key, value, flags))
#define map_delete(map, key) element_gone(FAULT(map, remove) ?: bpf_map_delete_elem(&map, key))

#endif
