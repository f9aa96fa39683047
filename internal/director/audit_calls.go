// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// calls looks for the template of each number of a call, and for the number of each
// call.
func (r *auditReader) calls() error {
	err := eachOf(r.ctx, r.d.maps.CallNumbers, r.judgeNumber)
	if err != nil {
		return err
	}
	return eachOf(r.ctx, r.d.maps.Calls, r.judgeCall)
}

func (r *auditReader) judgeNumber(number uint32, call bpfobj.LbCall) error {
	c, err := r.d.connOf(callKey(number, call.Clients.Family))
	if c != nil || err != nil {
		return err
	}
	now, err := r.d.call(number)
	if now == nil || *now != call || err != nil { // it ended meanwhile
		return err
	}
	r.pass.report(suspect{kind: AuditCallStray, number: number, hash: keyHash(&call)})
	return nil
}

func (r *auditReader) judgeCall(call bpfobj.LbCall, number uint32) error {
	owner, err := r.d.call(number)
	if owner != nil && *owner == call || err != nil {
		return err
	}
	var now uint32
	if err := r.d.maps.Calls.Lookup(&call, &now); errors.Is(err, ebpf.ErrKeyNotExist) || err == nil && now != number {
		return nil // it ended meanwhile
	} else if err != nil {
		return err
	}
	r.pass.report(suspect{kind: AuditCallStray, number: number, free: true, hash: keyHash(&call)})
	return nil
}

// deleteCall deletes what is left of a call without a template.
func (d *Director) deleteCall(s suspect) (string, error) {
	if !s.free {
		call, err := d.call(s.number)
		if err != nil || call == nil || keyHash(call) != s.hash {
			return repairChanged, err
		}
		return repairDone, d.forgetCall(s.number)
	}
	result := repairChanged
	err := eachOf(context.Background(), d.maps.Calls, func(call bpfobj.LbCall, number uint32) error {
		if number != s.number || keyHash(&call) != s.hash {
			return nil
		}
		err := d.maps.Calls.Delete(&call)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		result = repairDone
		return err
	})
	return result, err
}
