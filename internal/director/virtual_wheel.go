// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// In a Virtual no timer beats, or the real time would decide when connections
// end. The function that the wheel's timer calls is called by a program
// instead; the timer that it sets in the end was never made, and stays so.

const (
	clocksProgram = "start_clocks" // which has that function with it
	wheelFunction = "wheel_timer"
	turnProgram   = "turn_wheel"
	wheelClock    = 0 // CLOCK_WHEEL of bpf/maps.h
)

// withWheel adds a program that turns the wheel to the present.
func withWheel(spec *ebpf.CollectionSpec) error {
	from, ok := spec.Programs[clocksProgram]
	if !ok {
		return fmt.Errorf("the data plane has no program %s", clocksProgram)
	}
	functions := splitFunctions(from.Instructions)
	body, err := reachable(functions, wheelFunction)
	if err != nil {
		return err
	}
	entry := asm.Instructions{
		asm.StoreImm(asm.RFP, -4, wheelClock, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("clocks"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "none"),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.LoadMapPtr(asm.R1, 0).WithReference("clocks"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.Call.Label(wheelFunction),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("none"),
		asm.Return(),
	}
	entry[0].Metadata = from.Instructions[0].Metadata // the type of a program
	turn := from.Copy()
	turn.Name, turn.Instructions = turnProgram, append(entry, body...)
	spec.Programs[turnProgram] = turn
	return nil
}

// splitFunctions are the functions of a program, by name.
func splitFunctions(insns asm.Instructions) map[string]asm.Instructions {
	functions := map[string]asm.Instructions{}
	name := ""
	for _, ins := range insns {
		if s := ins.Symbol(); s != "" {
			name = s
		}
		functions[name] = append(functions[name], ins)
	}
	return functions
}

// reachable is a function with those that it calls, each once.
func reachable(functions map[string]asm.Instructions, name string) (asm.Instructions, error) {
	var all asm.Instructions
	seen := map[string]bool{name: true}
	for pending := []string{name}; len(pending) > 0; pending = pending[1:] {
		body, ok := functions[pending[0]]
		if !ok {
			return nil, errors.New("the data plane has no function " + pending[0])
		}
		all = append(all, body...)
		for _, callee := range body.FunctionReferences() {
			if !seen[callee] {
				seen[callee] = true
				pending = append(pending, callee)
			}
		}
	}
	return all, nil
}
