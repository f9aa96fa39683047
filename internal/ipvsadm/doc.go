// SPDX-License-Identifier: Apache-2.0

// Package ipvsadm is the command line of ipvsadm 1.31: it reads the same
// arguments, prints the same bytes and leaves with the same status, so that
// scripts written for Linux IPVS keep working.
//
// It owns the option syntax (popt's), the checks ipvsadm makes before it asks
// the kernel, the words it uses for the kernel's refusals, every listing
// format and the save and restore formats. What a table is and how it is
// stored is up to the implementation of [Table].
//
// A command passes through four steps, one or two files each:
//
//	popt.go, options.go     arguments        -> options with values
//	parse.go, check.go      options          -> a checked command
//	run.go, restore.go      command          -> calls on a Table
//	list.go, save.go, ...   what it returned -> text
//
// The package imports neither BPF nor netlink, and touches the host only to
// read /etc/hosts and /etc/services and, for names that are not there, to ask
// the DNS with a short patience.
//
// It differs from ipvsadm on purpose where a program should not follow: "-b ,"
// means no flags where ipvsadm crashes, and -S writes fwmarks from 2147483648 on
// without the minus sign that no -R accepts.
package ipvsadm
