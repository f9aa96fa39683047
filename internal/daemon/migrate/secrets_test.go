// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"strings"
	"testing"
)

// No message has a password of the file, wherever that stands.
func TestSecretsAreInNoMessage(t *testing.T) {
	const secret = "hunter2"
	instance := "vrrp_instance a {\ninterface e\n"
	url := "virtual_server 10.0.0.1 80 {\nreal_server 10.0.1.1 80 {\nHTTP_GET {\nurl {\npath /\n"
	for _, text := range []string{
		instance + "authentication {\nauth_type PASS\nauth_pass hunter2\n}\n}\n",
		instance + "auth_pass hunter2\n}\n",
		instance + "auth_pass \"hunter2\"\n}\n",
		instance + "auth_pass\thunter2 {\n}\n}\n",
		instance + "@main auth_pass hunter2\n}\n",
		instance + "auth_pass \"hunter2\n}\n",
		instance + "auth_pass ${a}hunter2\n}\n",
		instance + "auth_pass hunter2" + strings.Repeat(" ", 1100) + "\n}\n",
		instance + "notify \"/bin/notify --password hunter2\"\nnotify \"/bin/notify --password=hunter2\"\n}\n",
		url + "username u\npassword hunter2\n}\n}\n}\n}\n",
		url + "}\npassword hunter2\n}\n}\n}\n",
		"virtual=10.0.0.1:80\n\tservice=mysql\n\tpasswd=\"hunter2\"\n",
		"virtual=10.0.0.1:80\n\tservice=mysql\n\tsecret=hunter2\n",
		"virtual=10.0.0.1:80\n\tpassword=\"hunter2\"\n",
		"virtual=10.0.0.1:80\n\tpasswd:\"hunter2=\"\n",
		"virtual=10.0.0.1:80\n\tpasswd \"hunter2\"\n",
		"passwd=\"hunter2\"\nvirtual=10.0.0.1:80\n",
	} {
		r, err := importOne(t, "x", []byte(text), Source{})
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s", err)
			}
			continue
		}
		losses, err := json.Marshal(r.Losses)
		if err != nil || len(r.Losses) == 0 || strings.Contains(string(losses), secret) {
			t.Errorf("%q: %s, %v", text, losses, err)
		}
	}
}
