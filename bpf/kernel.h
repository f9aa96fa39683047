/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's headers, in the order that they need. */
#ifndef IMBANG_KERNEL_H
#define IMBANG_KERNEL_H

#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "stage.h"

#endif
