// SPDX-License-Identifier: Apache-2.0

package config

// Documents of layer 7.

type listenerDoc struct {
	Name           string            `yaml:"name" jsonschema_description:"required; a short name, for commands and metrics"`
	Bind           []string          `yaml:"bind" jsonschema_description:"required; addresses and ports of this host, such as 10.20.0.1:443 or [2001:db8::1]:443; 0.0.0.0 and [::] are all addresses of their family. An address of a virtual service with direct routing or tunnels is possible: the listener gets the connections for which the director selects this host. With masquerading alone none arrives at it, which is refused"`
	TLS            *listenerTLSDoc   `yaml:"tls" jsonschema_description:"HTTPS; without it, plain HTTP"`
	HTTP2          *bool             `yaml:"http2" jsonschema_description:"HTTP/2 beside HTTP/1: negotiated with tls, otherwise by prior knowledge; default true with tls, otherwise false"`
	HTTP3          bool              `yaml:"http3" jsonschema_description:"HTTP/3 at the same ports of UDP; requires tls, and a HAProxy with QUIC, which Debian 12 does not have; default false"`
	AcceptProxy    []string          `yaml:"accept_proxy" jsonschema_description:"networks whose connections begin with a PROXY protocol header, such as [10.0.0.0/8]; default none"`
	ForwardedFor   *bool             `yaml:"forwarded_for" jsonschema_description:"add X-Forwarded-For and X-Forwarded-Proto to requests, in place of those that clients send, and remove their Forwarded, X-Real-IP and all others that begin with X-Forwarded, also with _ for -; default true"`
	TrustedProxies []string          `yaml:"trusted_proxies" jsonschema_description:"networks of proxies whose headers of this kind are kept, with the address of the proxy behind theirs. The last address that they have in X-Forwarded-For is the client: for match.sources, limits.requests, balance: source, send_proxy, the access log and src in raw lines; one in another form, such as unknown or an IPv6 address with a port, is 0.0.0.0; default none"`
	Monitor        *monitorDoc       `yaml:"monitor" jsonschema_description:"path by which a director checks this host, without a query. HAProxy replies to it (monitor-uri) before it looks at routes, limits.requests, headers and raw lines other than monitor fail, to anybody, and logs nothing, so that directors are not kept from checking; default none"`
	Limits         limitsDoc         `yaml:"limits" jsonschema_description:"of clients"`
	Timeouts       clientTimeoutsDoc `yaml:"timeouts" jsonschema_description:"of clients; those of servers are in the backends"`
	Headers        []headerChangeDoc `yaml:"headers" jsonschema_description:"changes of headers of all requests and replies, in this order"`
	Routes         []routeDoc        `yaml:"routes" jsonschema_description:"a request takes the first route that it matches, otherwise the listener's own backend, redirect or reply"`
	TargetDoc      `yaml:",inline"`
	Log            *logDoc  `yaml:"log" jsonschema_description:"access log; default none"`
	Raw            []string `yaml:"raw" jsonschema_description:"lines of HAProxy's language for the listener's frontend, for what has no key; no sections, nothing that has a key, and no names that begin with imbang-"`
}

// TargetDoc is what becomes of a request. The YAML library decodes exported types alone into
// what embeds them.
type TargetDoc struct {
	Backend  string       `yaml:"backend" jsonschema_description:"name of the backend that requests go to; or redirect, or reply"`
	Redirect *redirectDoc `yaml:"redirect" jsonschema_description:"redirect of requests"`
	Reply    *replyDoc    `yaml:"reply" jsonschema_description:"fixed reply to requests"`
}

type redirectDoc struct {
	Status   int    `yaml:"status" jsonschema_description:"301, 302, 303, 307 or 308; default 302"`
	Scheme   string `yaml:"scheme" jsonschema_description:"http or https; without host, another scheme has its usual port; default the request's" jsonschema:"enum=http,enum=https"`
	Host     string `yaml:"host" jsonschema_description:"host, with or without port; default the request's"`
	Prefix   string `yaml:"prefix" jsonschema_description:"path that is prepended to the request's, such as /shop"`
	Location string `yaml:"location" jsonschema_description:"whole path or URL, in place of scheme, host and prefix"`
}

type replyDoc struct {
	Status      int    `yaml:"status" jsonschema_description:"200 to 599; default 200 in listeners and routes, 503 for maintenance"`
	ContentType string `yaml:"content_type" jsonschema_description:"default text/plain; charset=utf-8, or text/html; charset=utf-8 for a file that ends in .html"`
	Body        string `yaml:"body" jsonschema_description:"text, of 8 KiB at most; default empty"`
	File        string `yaml:"file" jsonschema_description:"absolute path of the body, in its place"`
}

type listenerTLSDoc struct {
	Certificates []string `yaml:"certificates" jsonschema_description:"required; absolute paths of files with certificate, chain and key (PEM); the first one is for clients without a server name (SNI), or with an unknown one"`
	StrictSNI    bool     `yaml:"strict_sni" jsonschema_description:"refuse these clients instead; default false"`
	MinVersion   string   `yaml:"min_version" jsonschema_description:"lowest version of TLS: 1.2 or 1.3; default 1.2" jsonschema:"oneof_type=string;number"`
	Ciphers      string   `yaml:"ciphers" jsonschema_description:"cipher suites of TLS 1.2, as openssl ciphers has them; default HAProxy's"`
	ClientCA     string   `yaml:"client_ca" jsonschema_description:"absolute path of certificate authorities (PEM): clients need a certificate of one. If there are more listeners with tls, clients of TLS 1.2 without tickets cannot resume sessions at any of them; default none"`
	HSTS         string   `yaml:"hsts" jsonschema_description:"time for which browsers use HTTPS alone (Strict-Transport-Security), such as 180 d; default none"`
}

type monitorDoc struct {
	Path     string `yaml:"path" jsonschema_description:"required; path such as /imbang-health that replies 200, and 503 while fewer backends have usable servers or this host drains"`
	Backends int    `yaml:"backends" jsonschema_description:"number of the listener's backends that must have usable servers; default 1"`
}

type limitsDoc struct {
	Connections       int    `yaml:"connections" jsonschema_description:"at the same time; default no limit but proxy.max_connections"`
	ClientConnections int    `yaml:"client_connections" jsonschema_description:"of one client at the same time, that is of one IPv4 address or IPv6 network of length 64: more are closed; those of trusted_proxies are not limited; default no limit"`
	Requests          int    `yaml:"requests" jsonschema_description:"of one client within the window, that is of one IPv4 address or IPv6 network of length 64, which a trusted proxy names in X-Forwarded-For: more get the status 429; default no limit"`
	Window            string `yaml:"window" jsonschema_description:"time in which requests are counted, 1 s to 1 h; default 10 s"`
	Body              string `yaml:"body" jsonschema_description:"size of a request's body, such as 10 MiB: longer ones get the status 413, and those of 8 KiB or more without a declared length 411, so it is not for streams of gRPC; default no limit"`
	Headers           string `yaml:"headers" jsonschema_description:"size of a request's line and headers, 1 KiB to 64 KiB: longer ones get the status 431, far longer ones 400; default HAProxy's, about 15 KiB"`
}

type clientTimeoutsDoc struct {
	Request   string `yaml:"request" jsonschema_description:"for a request's headers; default 10 s"`
	Body      string `yaml:"body" jsonschema_description:"for as much of a request's body as HAProxy's buffer holds; delays requests that are streamed, as those of gRPC; default none, but 10 s where limits.body has a body awaited"`
	KeepAlive string `yaml:"keep_alive" jsonschema_description:"between two requests; default 1 min"`
	Client    string `yaml:"client" jsonschema_description:"without a byte from or to the client; default 1 min"`
}

type headerChangeDoc struct {
	Name   string `yaml:"name" jsonschema_description:"required; such as X-Frame-Options"`
	Of     string `yaml:"of" jsonschema_description:"default request" jsonschema:"enum=request,enum=reply"`
	Value  string `yaml:"value" jsonschema_description:"value that it gets, as it is written: nothing in it is expanded"`
	Add    bool   `yaml:"add" jsonschema_description:"beside the values that are there; default false: in place of these"`
	Remove bool   `yaml:"remove" jsonschema_description:"remove the header, without value; default false"`
}

type routeDoc struct {
	Name        string   `yaml:"name" jsonschema_description:"for commands; default its number, from 0"`
	Match       matchDoc `yaml:"match" jsonschema_description:"conditions, all of which must be true; paths, path_prefixes and path_regexp are alternatives of one another; without it, every request"`
	TargetDoc   `yaml:",inline"`
	StripPrefix bool              `yaml:"strip_prefix" jsonschema_description:"remove the path prefix that was matched, with all slashes behind it: of /api//x, prefix /api, servers get /x; default false"`
	AddPrefix   string            `yaml:"add_prefix" jsonschema_description:"path that is prepended, such as /v2; default none"`
	Headers     []headerChangeDoc `yaml:"headers" jsonschema_description:"changes of headers, behind those of the listener"`
}

type matchDoc struct {
	Hosts        []string         `yaml:"hosts" jsonschema_description:"names, without port, one of which is the request's, in which case and a dot at the end make no difference: shop.example, or *.shop.example for all names below it. Where a route of a listener has such a condition, requests whose host is neither a name nor an address get the status 400"`
	Paths        []string         `yaml:"paths" jsonschema_description:"whole paths. They are compared as servers understand them, and passed on as they are sent: %61 is a, and one or more of / and \\ in any spelling, also as %2F and %5C, are one /; without the query, and case makes a difference. Where a route of a listener has a condition on paths, requests whose path has a segment . or .. in any spelling (which clients resolve), also with parameters (/..;a=b), parameters without a segment (/;a=b/x), a control character (%00 to %1F) or a % without two digits get the status 400"`
	PathPrefixes []string         `yaml:"path_prefixes" jsonschema_description:"beginnings of paths, by whole segments: /api is the beginning of /api and /api/x, not of /apis"`
	PathRegexp   string           `yaml:"path_regexp" jsonschema_description:"regular expression (RE2) of the whole path in the form in which paths are compared, that is decoded, such as /img/[0-9]+[.]png; repetitions of repetitions, as ([a-z]+)*, are refused. Where all else of the match is true, and the path begins as the expression does, paths longer than 2048 bytes get the status 414, and with repeated groups those longer than 512, or less if these have groups within"`
	Methods      []string         `yaml:"methods" jsonschema_description:"such as [GET, HEAD]"`
	Headers      []headerMatchDoc `yaml:"headers" jsonschema_description:"all of which must be true"`
	Sources      []string         `yaml:"sources" jsonschema_description:"networks of clients, such as [10.0.0.0/8]"`
}

type headerMatchDoc struct {
	Name   string `yaml:"name" jsonschema_description:"required; without value and regexp, the header must be there"`
	Value  string `yaml:"value" jsonschema_description:"that one of its values is"`
	Regexp string `yaml:"regexp" jsonschema_description:"regular expression (RE2) of one of its values as a whole"`
}

type logDoc struct {
	Format string `yaml:"format" jsonschema_description:"combined, as of Apache, or json, an object on each line; default combined" jsonschema:"enum=combined,enum=json"`
	File   string `yaml:"file" jsonschema_description:"required; absolute path"`
}

type backendDoc struct {
	Name          string             `yaml:"name" jsonschema_description:"required; a short name, for commands and metrics"`
	Balance       string             `yaml:"balance" jsonschema_description:"roundrobin and leastconn by weight; source, uri (path without query) and header are consistent hashes; random is the less busy of two; first fills one server after the other up to max_connections, without weights; default roundrobin" jsonschema:"enum=roundrobin,enum=leastconn,enum=source,enum=uri,enum=header,enum=random,enum=first"`
	Header        string             `yaml:"header" jsonschema_description:"name of the header, for balance: header"`
	Protocol      string             `yaml:"protocol" jsonschema_description:"to the servers: http/1.1 or h2, which gRPC requires; default http/1.1" jsonschema:"enum=http/1.1,enum=h2"`
	TLS           *serverTLSDoc      `yaml:"tls" jsonschema_description:"TLS to the servers; without it, plain"`
	SendProxy     string             `yaml:"send_proxy" jsonschema_description:"version of the PROXY protocol that connections to servers begin with, those of checks of the same port as well; default none" jsonschema:"enum=v1,enum=v2"`
	Cookie        *cookieDoc         `yaml:"cookie" jsonschema_description:"keeps clients at their server; default none"`
	Retries       *int               `yaml:"retries" jsonschema_description:"of connections that fail, and of requests as retry_on says, 0 to 100; default 3"`
	Redispatch    *bool              `yaml:"redispatch" jsonschema_description:"a retry takes another server; default true"`
	RetryOn       []string           `yaml:"retry_on" jsonschema_description:"what is followed by a retry, of idempotent requests: conn-failure, empty-response, junk-response, response-timeout, 0rtt-rejected, or a status of 401 and 403 (both from HAProxy 2.7 on), 404, 408, 425, 429 (from HAProxy 3.0 on), 500, 501, 502, 503 and 504; default [conn-failure]"`
	Timeouts      serverTimeoutsDoc  `yaml:"timeouts" jsonschema_description:"of servers"`
	SlowStart     string             `yaml:"slow_start" jsonschema_description:"time in which a returning server gets its full share; default none"`
	DrainDeadline string             `yaml:"drain_deadline" jsonschema_description:"time after which a drain closes connections unless it is told another; default never"`
	Maintenance   *replyDoc          `yaml:"maintenance" jsonschema_description:"reply while no server is usable; default status 503 and HAProxy's text"`
	Checks        []string           `yaml:"checks" jsonschema_description:"names of the checks of its servers, all of which must succeed; they are made by imbang run. If proxy.fallback applies, HAProxy makes the first one of kind http, tls or tcp as far as it can: the first request with path, method, host and status, or a connection. Without checks servers are always up"`
	Servers       []backendServerDoc `yaml:"servers" jsonschema_description:"required; servers"`
	Raw           []string           `yaml:"raw" jsonschema_description:"lines of HAProxy's language for the backend, for what has no key; no sections, and nothing that has a key"`
}

type serverTLSDoc struct {
	Verify     *bool  `yaml:"verify" jsonschema_description:"verify the servers' certificates, which requires ca; default true"`
	CA         string `yaml:"ca" jsonschema_description:"absolute path of the certificate authorities (PEM) to verify with"`
	ServerName string `yaml:"server_name" jsonschema_description:"name in the handshake (SNI), and the one that is verified; default the request's host, which clients choose"`
	ClientCert string `yaml:"client_cert" jsonschema_description:"absolute path of a client certificate and its key, in one file (PEM); default none"`
}

type cookieDoc struct {
	Name     string `yaml:"name" jsonschema_description:"required; unique among the backends"`
	Secure   *bool  `yaml:"secure" jsonschema_description:"for HTTPS alone; default true if all listeners that lead to the backend have tls"`
	HTTPOnly *bool  `yaml:"http_only" jsonschema_description:"not for scripts; default true"`
	SameSite string `yaml:"same_site" jsonschema_description:"requests of other sites that have it: none (strict), links (lax) or all (none); default as browsers do" jsonschema:"enum=strict,enum=lax,enum=none"`
	MaxIdle  string `yaml:"max_idle" jsonschema_description:"time without a request after which the client may get another server; default no limit"`
	MaxLife  string `yaml:"max_life" jsonschema_description:"time after which the client may get another server in any case; default no limit"`
}

type serverTimeoutsDoc struct {
	Connect string `yaml:"connect" jsonschema_description:"to a server; default 5 s"`
	Server  string `yaml:"server" jsonschema_description:"for a reply, and between two parts of it; default 1 min"`
	Queue   string `yaml:"queue" jsonschema_description:"for a free server, where all have max_connections; default 10 s"`
	Tunnel  string `yaml:"tunnel" jsonschema_description:"without a byte in either direction of a WebSocket; default 1 h"`
}

type backendServerDoc struct {
	Name           string    `yaml:"name" jsonschema_description:"for commands, metrics and the cookie; default address and port, and in the cookie a number in place of these"`
	Address        string    `yaml:"address" jsonschema_description:"required; address and port, such as 172.16.0.2:8080"`
	Weight         *int      `yaml:"weight" jsonschema_description:"0 to 256; default 1, but 100 for all servers of a backend with balance source, uri, header or random if none of them has a weight: their shares are as exact as weights are large, with 1 within a third and with 100 within a few percent"`
	MaxConnections int       `yaml:"max_connections" jsonschema_description:"at the same time: further requests wait; default no limit"`
	Backup         bool      `yaml:"backup" jsonschema_description:"gets requests only while no other server is usable; default false"`
	Checks         *[]string `yaml:"checks" jsonschema_description:"default the backend's; [] for none"`
}

type proxyDoc struct {
	User           string   `yaml:"user" jsonschema_description:"user of the workers, not root; default haproxy"`
	Group          string   `yaml:"group" jsonschema_description:"their group, not root; default haproxy"`
	Threads        int      `yaml:"threads" jsonschema_description:"1 to 64; default one for each CPU"`
	MaxConnections int      `yaml:"max_connections" jsonschema_description:"of clients, at the same time; default as many as file descriptors allow"`
	Streams        int      `yaml:"streams" jsonschema_description:"of HTTP/2 for each connection of a client at the same time, 1 to 1000; default HAProxy's"`
	Fallback       string   `yaml:"fallback" jsonschema_description:"time without imbang run after which HAProxy checks servers itself, 5 s or more; 0 s: never; default 30 s"`
	Raw            []string `yaml:"raw" jsonschema_description:"lines of HAProxy's language for its section global, for what has no key; no sections, and nothing that imbang sets"`
}
