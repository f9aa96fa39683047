// SPDX-License-Identifier: Apache-2.0

package director

import "imbang/internal/bpfobj"

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
	state, err := d.state()
	if err != nil {
		return err
	}
	if state.Attack.Since != 0 && set.SynDefence == automatic {
		set.SynDefence = atWork
	}
	now, err := monotonic()
	if err != nil || state.Defence.Until <= now {
		return err
	}
	for _, mode := range defences(set) {
		if *mode == automatic {
			*mode = atWork
		}
	}
	return nil
}
