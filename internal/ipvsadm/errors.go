// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"errors"
	"io/fs"

	"imbang/internal/model"
)

// refusals are Linux's words for a table's refusals.
var refusals = []struct {
	err  error
	text string
}{
	{model.ErrServiceExists, "Service already exists"},
	{model.ErrNoService, "No such service"},
	{model.ErrServerExists, "Destination already exists"},
	{model.ErrNoServer, "No such destination"},
	{model.ErrNoScheduler, "Scheduler or persistence engine not found"},
	{model.ErrThresholdRange, "Numerical result out of range"},
	{model.ErrTableFull, "Memory allocation problem"},
	{ErrDaemonRuns, "Daemon has already run"},
	{ErrNoDaemon, "No daemon is running"},
	{model.ErrInvalid, "Invalid operation.  Possibly wrong module version, address not unicast, ..."},
	{fs.ErrPermission, "Permission denied (you must be root)"},
}

// explain says why the table refused a command. What Linux has no words for
// keeps its own.
func explain(v verb, err error) string {
	if v.onServer() && errors.Is(err, model.ErrNoService) {
		return "Service not defined"
	}
	for _, w := range refusals {
		if errors.Is(err, w.err) {
			return w.text
		}
	}
	if v == verbStartDaemon || v == verbStopDaemon {
		if text, is := errnoText(err); is {
			return text
		}
	}
	return "ipvsadm: " + err.Error()
}
