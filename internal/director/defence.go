// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"

	"imbang/internal/bpfobj"
)

// The modes of drop_entry, drop_packet and secure_tcp. An automatic defence
// that is at work is shown as atWork, and setting that is to set automatic, as
// in Linux.
const (
	automatic  = uint32(bpfobj.LbDefenceModeDEFENCE_AUTOMATIC)
	atWork     = automatic + 1
	maxDefence = uint32(bpfobj.LbDefenceModeDEFENCE_ALWAYS)
)

// modeWords are the modes in words.
var modeWords = map[string]uint32{"never": uint32(bpfobj.LbDefenceModeDEFENCE_NEVER), "auto": automatic, "always": maxDefence}

// defences are the settings that are such modes and go by the room in the
// table.
func defences(set *bpfobj.LbSettings) map[string]*uint32 {
	return map[string]*uint32{"drop_entry": &set.DropEntry, "drop_packet": &set.DropPacket, "secure_tcp": &set.SecureTcp}
}

// isMode reports whether a setting is such a mode.
func isMode(name string) bool {
	return name == "syn_defence" || defences(&bpfobj.LbSettings{})[name] != nil
}

// notHere are Linux's settings that say nothing to this director, and why.
var notHere = map[string]string{
	"amemthresh": "BPF programs cannot ask for the free memory that it is compared with; automatic defences (drop_entry=1) go by the room for connections instead",
}

// stored is the setting as it is kept.
func (s Setting) stored() Setting {
	if isMode(s.Name) && s.Value == atWork {
		s.Value = automatic
	}
	return s
}

// showAlarm makes automatic defences that are at work say so.
func (d *Director) showAlarm(set *bpfobj.LbSettings) error {
	attack, err := d.attack()
	if err != nil {
		return err
	}
	if attack.Since != 0 && set.SynDefence == automatic {
		set.SynDefence = atWork
	}
	memory, err := d.defence()
	if err != nil {
		return err
	}
	now, err := monotonic()
	if err != nil || memory.Until <= now {
		return err
	}
	for _, mode := range defences(set) {
		if *mode == automatic {
			*mode = atWork
		}
	}
	return nil
}

// defence is what the defences remember.
func (d *Director) defence() (memory bpfobj.LbDefence, err error) {
	if err := d.maps.Defences.Lookup(uint32(0), &memory); err != nil {
		return memory, fmt.Errorf("read the defences: %w", err)
	}
	return memory, nil
}
