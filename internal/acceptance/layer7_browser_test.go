// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package acceptance

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// browserPage sends to /page/end what a browser makes of a listener: the protocol of the page and of
// a request, a cookie that comes back, and a message by WebSocket.
const browserPage = `<!doctype html><title>page</title><script>
const said = []
const socket = new WebSocket("wss://" + location.host + "/chat", "echo")
const answer = new Promise((done, failed) => {
	socket.onmessage = (m) => done("socket " + m.data + " " + socket.protocol)
	socket.onerror = () => failed("socket failed")
})
socket.onopen = () => socket.send("hello")
const run = async () => {
	said.push("page " + performance.getEntriesByType("navigation")[0].nextHopProtocol)
	const r = await fetch("/page/cookie", {method: "POST", body: "x".repeat(100000)})
	said.push("post " + r.status + " " + await r.text())
	said.push("request " + performance.getEntriesByName(r.url)[0].nextHopProtocol)
	said.push(await answer)
}
run().catch((e) => said.push("error " + e)).then(() => fetch("/page/end", {method: "POST", body: said.join(", ")}))
</script>`

// Chromium, over HTTPS: HTTP/2, a body, a cookie and a WebSocket. The page says itself when it has
// everything: the virtual time of --dump-dom does not wait for WebSockets.
func TestLayer7Chromium(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("needs chromium: install the package chromium")
	}
	w := newProxied(t, strings.Replace(streamsConfig(), "      - {match: {paths: [/chat]}", "      - {match: {path_prefixes: [/page, /chat]}", 2))
	end := make(chan string, 10)
	w.echo(func(rw http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/page":
			http.SetCookie(rw, &http.Cookie{Name: "seen", Value: "yes", Secure: true})
			fmt.Fprint(rw, browserPage)
		case "/page/cookie":
			fmt.Fprint(rw, r.ContentLength, " ", r.Header.Get("Cookie"))
		case "/page/end":
			text, _ := io.ReadAll(r.Body)
			end <- string(text)
		default:
			return false
		}
		return true
	})
	const patience = time.Minute
	cmd := exec.Command("timeout", "--kill-after=5", "70", program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--ignore-certificate-errors", "--user-data-dir="+t.TempDir(), "https://"+webTLS+"/page")
	cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	w.host.Start(cmd)
	said := ""
	select {
	case said = <-end:
	case <-time.After(patience):
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // timeout passes it to its process group
	_ = cmd.Wait()
	if want := "page h2, post 200 100000 seen=yes, request h2, socket hello echo"; said != want {
		t.Errorf("the page says %q, expected %q\n%s", said, want, log.String())
	}
}
