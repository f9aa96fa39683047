// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"strings"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/study"
)

// keys say what each key of a study means; "required" begins what must be given.
// A test compares them with the keys that the parser accepts.
var keys = map[string]string{
	"name":       "required; a short name of lower-case letters and digits",
	"title":      "required; the title of the report",
	"source":     "where a published experiment comes from",
	"hypothesis": "what the study expects",

	"cluster":                       "required; the hosts",
	"cluster.families":              "`ipv4`, `ipv6` or both; default `[ipv4]`",
	"cluster.client_namespaces":     "required; network namespaces that clients run in",
	"cluster.client_addresses":      "required; source addresses of all clients together, at least one for each namespace",
	"cluster.virtual_addresses":     "1 to 4096 addresses of the service; default 1. See [many destinations](../how-to/many-destinations.md)",
	"cluster.servers":               "required; the real servers",
	"cluster.servers[].kind":        "required; `nginx`, `model` (built in, of a stated capacity) or `api` (an application that registers users in a database all of its kind share)",
	"cluster.servers[].count":       "this many equal servers; default 1",
	"cluster.servers[].page":        "required for `model`, and for `nginx` without `content`; size of the page, such as `375 B`",
	"cluster.servers[].content":     "of `nginx`: absolute path of a directory that all such servers serve, such as mounted shared storage; the page is its `index.html`",
	"cluster.servers[].law":         "required for `model`; distribution of service times: `constant`, `exponential`, `pareto` or `lognormal`. A path such as `/service/lognormal` asks for that distribution with the same mean",
	"cluster.servers[].service":     "required for `model`; mean service time on a server of speed 1, such as `8 ms`",
	"cluster.servers[].concurrency": "required for `model`; requests served at the same time, others wait",
	"cluster.servers[].backlog":     "of a `model`: requests that may wait, others get status 503; default any number",
	"cluster.servers[].speed":       "of a `model`: requests are served this many times as fast; default 1",
	"cluster.servers[].hashes":      "of a `model`: SHA-256 hashes of 1 KB that each request computes; default 0",
	"cluster.weights":               "sets of weights by name, one weight for each server, such as `capacity: [4, 3, 2]`; default one set of equal weights",

	"load":                           "required; has exactly one of `rates`, `fractions`, `users` and `replay`",
	"load.rates":                     "open loop: connections per second",
	"load.fractions":                 "open loop: fractions of the capacity that the pilot measures, such as `[0.3, 0.6, 0.9]`",
	"load.published_rates":           "with `fractions`, in the same order: the published rates whose figures stand beside",
	"load.reference":                 "with `fractions`: the competitor that the pilot measures the capacity with; default the first that balances",
	"load.arrivals":                  "of an open loop: patterns such as `constant`, `poisson`, `poisson batch=10`, `poisson burst=20`, `constant on=200ms off=800ms`, `constant to=2000`; default `[constant]`",
	"load.connections":               "length of an open-loop cell in connections; or `duration`",
	"load.users":                     "closed loop: numbers of users that each wait for a reply before the next request",
	"load.replay":                    "requests of a web server's log. See [replay your web log](../how-to/replay.md)",
	"load.replay.log":                "required; path of an access log, relative to the study",
	"load.replay.speeds":             "speeds of the replay, 1 being as logged; default `[1]`",
	"load.replay.from":               "begin at this time after the log's first entry",
	"load.replay.until":              "end at this time after the log's first entry",
	"load.replay.within_second":      "requests of one logged second are sent evenly (the default) or, with `uniform`, at random instants",
	"load.replay.methods":            "methods that are sent; default `[GET, HEAD]`",
	"load.requests":                  "length of a closed-loop cell in requests, a list; or `duration`",
	"load.duration":                  "length of a cell, such as `5 s`",
	"load.timeout":                   "required; a request without a reply after this time has failed",
	"load.requests_per_connection":   "default 1",
	"load.calls":                     "kinds of requests; default `GET /`, named `page`",
	"load.calls[].name":              "required",
	"load.calls[].method":            "`GET` (the default) or `POST`",
	"load.calls[].path":              "required; `{n}` is the number of the request, `{cell}` of the cell, `{url}` one of `load.urls`",
	"load.calls[].body":              "of a `POST`, with the same placeholders",
	"load.calls[].content_type":      "of the body",
	"load.calls[].keep_alive":        "true: a connection carries requests without limit; default false: `load.requests_per_connection`",
	"load.calls[].tls":               "true: by HTTPS, at port 443; tools ab, siege and wrk, engines `haproxy-http`, `nginx-http` and `imbang-l7`; default false",
	"load.urls":                      "how many URLs `{url}` stands for",
	"load.url_zipf":                  "Zipf exponent of their popularity, 0 to 10",
	"load.destination_zipf":          "Zipf exponent of the virtual addresses' popularity, 0 to 10",
	"load.tools":                     "tools that make the load: `built-in` (the default), `httperf`, `ab`, `siege`, `wrk`",
	"load.faults":                    "what happens to servers during every cell",
	"load.faults[].at":               "required; time from the end of the warm-up",
	"load.faults[].server":           "required; `s1` for the first server",
	"load.faults[].do":               "required; `kill`, `start`, `pause`, `resume` or `slow`",
	"load.faults[].factor":           "of `slow`: this many times as slow",
	"load.tool_cells":                "cells with one tool and its own parameters, without a warm-up, left out by `--quick`",
	"load.tool_cells[].tool":         "required; open loop: `httperf`; closed loop: `built-in`, `ab`, `siege`; `ping` sends ICMP echo requests one after the other",
	"load.tool_cells[].fraction":     "open loop: fraction of the measured capacity",
	"load.tool_cells[].rate":         "open loop, in place of `fraction`: connections per second",
	"load.tool_cells[].connections":  "open loop: connections",
	"load.tool_cells[].users":        "closed loop: users",
	"load.tool_cells[].requests":     "closed loop: requests; of `ping` echo requests",
	"load.tool_cells[].keep_alive":   "`true`: a connection carries many requests",
	"load.tool_cells[].calls":        "names of `load.calls`",
	"load.tool_cells[].published":    "level of the published tables that stands beside",
	"competitors":                    "required; what is compared",
	"competitors[].name":             "name in the report; default the scheduler, with the engine where several are compared",
	"competitors[].engine":           "required; one of `" + strings.Join(engine.Names(), "`, `") + "`. An engine that the machine does not have is left out, and the report says so",
	"competitors[].schedulers":       "by the engine's own names",
	"competitors[].weights":          "name of one of `cluster.weights`",
	"competitors[].servers":          "how many of the servers take part, a list",
	"repeats":                        "required; blocks, each of which holds every cell once",
	"repeats.least":                  "required; blocks of every run, 1 to 1000",
	"repeats.most":                   "with `until_percent`: blocks are added up to this number",
	"repeats.until_percent":          "blocks are added until all intervals are this narrow",
	"repeats.budget":                 "blocks are added until this time has passed",
	"quick":                          "what `--quick` changes",
	"quick.duration":                 "length of a cell; default 1 s",
	"quick.repeats":                  "blocks; default 1",
	"published":                      "figures of a published experiment, printed beside the measured ones",
	"published.virtual_address":      "its virtual address, a label",
	"published.conclusion":           "its conclusion",
	"published.notes":                "remarks on it",
	"published.tables":               "its tables",
	"published.tables[].metric":      "`throughput`, `response_time`, `request_rate` or `loss`",
	"published.tables[].label":       "such as `Table 4.1`",
	"published.tables[].unit":        "`KB/s` of 1024 bytes, `ms`, `1/s` or `%`, by the metric",
	"published.tables[].family":      "the table's family; default every one",
	"published.tables[].call":        "the table's call; default every one",
	"published.tables[].columns":     "competitors",
	"published.tables[].rows":        "values by level (rate, users or requests), in the order of `columns`",
	"published.statements":           "figures outside the tables; `imbang-lab import` compares them with the tables",
	"published.statements[].where":   "such as `the text`",
	"published.statements[].metric":  "as of a table",
	"published.statements[].family":  "as of a table",
	"published.statements[].of":      "the competitor",
	"published.statements[].level":   "of a single figure",
	"published.statements[].value":   "of a single figure, in the metric's unit",
	"published.statements[].over":    "the competitor that `of` is compared with",
	"published.statements[].percent": "by how much the mean of `of` over all levels exceeds that of `over`",
	"published.replies":              "what the publication's logs show of the replies to a request",
	"published.replies[].of":         "the request",
	"published.replies[].count":      "number of replies; 0 where only the class is known",
	"published.replies[].not_2xx":    "how many of them were not 2xx",
	"published.replies[].failed":     "how many the tool counted as failed",
	"published.replies[].only":       "the one class that all replies had, such as `3xx`",
}

func studyPage() Page {
	text := title("Keys of a study", "the parser of studies") + "A study is a YAML file for `imbang-lab run`. Unknown keys, wrong " +
		"units and impossible values are refused with file, line and remedy. [Add a study](../how-to/add-a-study.md) begins " +
		"with an example; more are in `studies/`. `[]` stands behind a key that has a list of mappings.\n"
	var rows [][]string
	flush := func() {
		if rows != nil {
			text += "\n" + table([]string{"key", "value", "meaning and default"}, rows)
			rows = nil
		}
	}
	for _, k := range study.Keys() {
		if !strings.Contains(k.Path, ".") && (k.Kind == "a mapping: keys with values, indented" || strings.HasPrefix(k.Kind, "a list")) {
			flush()
			text += "\n## " + k.Path + "\n"
		}
		kind, _, _ := strings.Cut(k.Kind, ":")
		kind, _, _ = strings.Cut(kind, " such as")
		rows = append(rows, []string{code(k.Path), strings.TrimPrefix(kind, "a "), keys[k.Path]})
	}
	flush()
	return Page{"study.md", text}
}
