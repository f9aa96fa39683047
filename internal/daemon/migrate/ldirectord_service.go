// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// serviceKeys are the keys of a service but for its address.
func (l *ldirectord) serviceKeys(v *virtual, network string, six bool) (keys []string) {
	scheduler, schedflags := "wrr", option{}
	quiescent, said := v.get("quiescent")
	if !said {
		quiescent, _ = l.get("quiescent")
	}
	if o, ok := v.get("scheduler"); ok {
		if _, known := model.SchedulerNamed(o.value); known {
			scheduler = o.value
		} else {
			l.lose(o.place, o.text(), "there is no scheduler %s: wrr", o.value)
		}
	}
	if o, ok := v.get("persistent"); ok {
		n, _ := strconv.Atoi(o.value)
		keys = append(keys, "persistence: "+span(time.Duration(n)*time.Second))
	}
	keys = append(keys, l.netmask(v, six)...)
	for _, o := range v.options {
		switch o.key {
		case "schedflags":
			schedflags = o
		case "emailalert":
			l.lose(o.place, o.text(), "mail is sent for all services: daemon.mail_to")
		}
	}
	switch o, _ := v.get("ops"); {
	case o.value == "yes" && network == "udp":
		keys = append(keys, "one_packet: true")
	case o.value == "yes":
		l.lose(o.place, o.text(), "is for UDP: left out, as by ldirectord")
	}
	keys = append(keys, "scheduler: "+scheduler)
	if flags := l.flags(schedflags, scheduler); flags != nil {
		keys = append(keys, "flags: "+list(flags))
	}
	if quiescent.value != "yes" {
		keys = append(keys, "on_failure: remove")
	}
	return keys
}

var dotted = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+$`)

// netmask is that of clients, which only a persistent service has.
func (l *ldirectord) netmask(v *virtual, six bool) (keys []string) {
	_, persistent := v.get("persistent")
	for _, o := range v.options {
		if o.key != "netmask" {
			continue
		}
		n, ok := maskLength(o.value)
		switch {
		case dotted.MatchString(o.raw) == six || !ok && six:
			l.lose(o.place, o.text(), refusing+"want %s; left out", map[bool]string{true: "a length from 1 to 128", false: "a mask such as 255.255.255.0"}[six])
		case !persistent:
			l.lose(o.place, o.text(), "is used only with persistent: left out, as by ldirectord")
		case !ok:
			l.lose(o.place, o.text(), "not a netmask that is a prefix")
		default:
			keys = []string{fmt.Sprintf("netmask: %d", n)}
		}
	}
	return keys
}

// flags are those of a scheduler.
func (l *ldirectord) flags(o option, name string) (flags []string) {
	scheduler, _ := model.SchedulerNamed(name)
	if unquoted := ldInside.FindStringSubmatch(o.value); unquoted != nil {
		o.value = unquoted[1] // by the shell that runs ipvsadm
	} else if strings.Contains(o.value, `"`) {
		l.lose(o.place, o.text(), "ldirectord reads to the first blank, and the quote that is left makes its command fail: read without quotes")
		o.value = strings.Trim(o.raw, "\" \t")
	}
	for _, w := range strings.FieldsFunc(o.value, func(c rune) bool { return c == ',' || c == ' ' }) {
		known := slices.IndexFunc(scheduler.Flags, func(f model.SchedulerFlag) bool { return f.Name == w })
		for i, bit := range []model.ServiceFlags{model.SchedFlag1, model.SchedFlag2, model.SchedFlag3} {
			if w == fmt.Sprintf("flag-%d", i+1) {
				known = slices.IndexFunc(scheduler.Flags, func(f model.SchedulerFlag) bool { return f.Bit == bit })
			}
		}
		if known < 0 {
			l.lose(o.place, o.text(), "%s: not a flag of %s: left out", w, name)
			continue
		}
		if f := scheduler.Flags[known].Name; !slices.Contains(flags, f) {
			flags = append(flags, f)
		}
	}
	return flags
}
