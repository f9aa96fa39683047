// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"imbang/internal/director"
)

func TestAuditText(t *testing.T) {
	for _, c := range []struct {
		report director.AuditReport
		want   string
	}{
		{director.AuditReport{Connections: 3, Services: 1, Servers: 2}, "3 connections, 0 templates, 1 services, 2 servers: sound (0s)\n"},
		{director.AuditReport{NotJudged: []string{"services"}}, "0 connections, 0 templates, services and servers not read: nothing found in what was judged (0s)\nnot judged: services\n"},
	} {
		var b strings.Builder
		if err := printAudit(&b, &c.report); err != nil || b.String() != c.want {
			t.Errorf("%q, %v; want %q", b.String(), err, c.want)
		}
	}
}
