// SPDX-License-Identifier: Apache-2.0

package supervise

import "time"

// Status is what the supervisor does, in StateFile and for Ask.
type Status struct {
	Supervisor int       `json:"supervisor"` // process
	Config     string    `json:"config"`     // file, as the process names it
	Since      time.Time `json:"since"`      // its program was started
	Phase      Phase     `json:"phase"`
	HAProxy    int       `json:"haproxy,omitempty"` // master process
	Version    string    `json:"version,omitempty"`
	Workers    []int     `json:"workers,omitempty"`
	Old        []int     `json:"old_workers,omitempty"` // at the last start or reload
	Started    time.Time `json:"started,omitzero"`      // HAProxy, as far as this supervisor knows
	Starts     int       `json:"starts"`                // of HAProxy, by this supervisor
	Reloads    int       `json:"reloads"`
	Failed     int       `json:"failed_reloads"`
	// Configuration is what HAProxy has loaded, and Refused the last one that it did not
	// accept, with the reason.
	Configuration string `json:"configuration,omitempty"`
	Refused       string `json:"refused,omitempty"`
	Reason        string `json:"reason,omitempty"`
	// LastEnd says how HAProxy ended last, unexpectedly.
	LastEnd string `json:"last_end,omitempty"`
	// Logged is how far LogFile was copied.
	Logged int64 `json:"logged"`
}
