/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The settings that user space writes.
 */
#ifndef IMBANG_SETTINGS_H
#define IMBANG_SETTINGS_H

#include "maps.h"

static __always_inline struct settings *get_settings(void)
{
	return &config.settings;
}

#endif
