// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	keeper "imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
)

// daemon is the reply of imbang run. Without status and error none runs.
type daemon struct {
	status *api.Status
	err    error // why it does not answer
}

// daemonPatience is how long the daemon may take.
const daemonPatience = 5 * time.Second

func askDaemon() daemon {
	client, err := api.NewClient()
	if err != nil {
		return daemon{err: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), daemonPatience)
	defer cancel()
	s, err := client.Status(ctx)
	if errors.Is(err, api.ErrNoDaemon) {
		return daemon{}
	}
	return daemon{s, err}
}

// runs reports whether there is a daemon, also one that does not answer.
func (d daemon) runs() bool { return d.status != nil || d.err != nil }

// missing is the configuration of services that no daemon keeps: that of the one that ended, else one
// that the user names, or the usual one. "": a daemon runs, or none has services.
func (d daemon) missing(file string) (string, error) {
	if d.runs() {
		return "", nil
	}
	left, err := keeper.LeftBehind()
	if err != nil {
		return "", err
	}
	file = cmp.Or(file, config.DefaultFile)
	if left != nil {
		return cmp.Or(left.Config, file), nil
	}
	if c, err := config.Load(file); err != nil || len(c.Services) == 0 {
		return "", nil //nolint:nilerr // gatherVRRP reports it
	}
	return file, nil
}

// file is its configuration; "": not known.
func (d daemon) file() string {
	if d.status == nil {
		return ""
	}
	return fileOf(d.status.PID, d.status.Config)
}

// fileOf is a file that a process names, as others find it; "": not known.
func fileOf(pid int, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return ""
	}
	return filepath.Join(dir, path)
}

// proxyAlarm says why HAProxy does not do what the daemon wants; "": it does.
func (d daemon) proxyAlarm() string {
	if d.status == nil {
		return ""
	}
	if p := d.status.Proxy; p != nil && p.Error != "" {
		return p.Error // the alarm leaves out what HAProxy says
	}
	return d.alarm("proxy")
}

// alarm is the text of a raised alarm; "": it is not raised.
func (d daemon) alarm(name string) string {
	if d.status == nil {
		return ""
	}
	if i := slices.IndexFunc(d.status.Alarms, func(a api.Alarm) bool { return a.Name == name }); i >= 0 {
		return d.status.Alarms[i].Text
	}
	return ""
}
