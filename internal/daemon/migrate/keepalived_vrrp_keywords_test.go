// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
)

// judgedVRRPBlocks are the kinds of blocks of VRRP.
func judgedVRRPBlocks() map[string]judgedBlock {
	return map[string]judgedBlock{
		"vrrp_instance":   {"vrrp_instance a {\n", "}\n", slices.Collect(maps.Keys(instances.keys)), nestedOf(instances.nested, laterInInstance)},
		"vrrp_script":     {"vrrp_script a {\n", "}\n", slices.Collect(maps.Keys(vrrpScripts.keys)), nil},
		"vrrp_sync_group": {"vrrp_sync_group a {\n", "}\n", slices.Collect(maps.Keys(syncGroups.keys)), syncGroups.nested},
		"global_defs":     {"global_defs {\n", "}\n", slices.Collect(maps.Keys(globalDefs.keys)), globalDefs.nested},
	}
}

func nestedOf(all, but []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(but, n) })
}

// Keywords of versions after 2.2, and of builds of it that Debian does not have.
var (
	laterInInstance = []string{
		"no_virtual_ipaddress", "v3_checksum_as_v2", "timer_expired_backup", "thread_timer_expired", "owner_ignore_adverts", "auth_hmac",
	}
	laterInGlobal = []string{
		"use_symlink_paths", "set_supplementary_groups", "v3_checksum_as_v2", "snmp_vs_stats_update_interval", "snmp_rs_stats_update_interval",
		"dbus_no_interface_name", "vrrp_delay_after_boot", "vrrp_owner_ignore_adverts", "json_version", "iproute_usr_dir", "iproute_etc_dir",
		"state_dump_file", "stats_dump_file", "json_dump_file", "vrrp_ipsets",
	}
)
