// SPDX-License-Identifier: Apache-2.0

// Package bpfobj holds the compiled data plane and the Go types of its maps.
//
// Everything but this file is made from bpf/ by bpf2go (`make generate`) and
// committed, so that building imbang needs no C compiler; CI makes it again
// and fails if it differs. The object's licence is GPL-2.0-only, as the
// kernel's helpers ask; this file's is that of the rest of the Go code.
package bpfobj

//go:generate go tool bpf2go -go-package bpfobj -target bpfel -cc clang -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 $BPF_CFLAGS" -type address -type check_flow -type forward -type service_key -type service -type service_state -type server -type quarantine -type extent -type load -type counters -type rates -type flow -type flow4 -type endpoint -type reply_owner -type conn -type settings -type config_table -type state_table -type cache_table -type syncing -type xdp_device -type asked_neighbour -type routing -type locality_key -type locality -type locality_set -type buckets -type maglev -type allowance -type fragment_key -type fragment -type mark_key -type change -type reason -type scheduler -type conn_state -type conn_flag -type template_kind -type change_event -type server_flag -type service_flag -type news -type contender -type trace_event -type explanation -type tracer -type block_table -type page_table -type block_head -type block_kind -type shape_table -type flow_secret -type defence -type defence_mode -type tree -type tree_pair -type attack -type crowd -type fair_sum -type ramp_turn -type maglev_turn -type crowding -type handshake_counts -type proof -type secret -type engine -type call -type conn4 -type conn6 -type repair -type repair_kind -type repair_result -type entry -type clock -type conn_record -type record_result -type record_kind -type follow_kind -type follow_event -type follower -type failover_word -type hand_over -type link_address Lb ../../bpf/lb.bpf.c
//go:generate go run ./fingerprint
