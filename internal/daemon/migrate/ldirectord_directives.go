// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// directive is one that ldirectord has (read_config() of the program).
type directive struct {
	global, service bool // where a line may stand
	read            form
	lost            string // why it is not carried over; empty: it is
}

// form reads a value as ldirectord does. A note is listed: why ldirectord refuses the value,
// or what differs. ok is false if there is no value then.
type form func(raw string) (value, note string, ok bool)

const (
	isGlobal = 1 << iota
	isService
)

func directiveOf(where int, read form, lost string) directive {
	return directive{where&isGlobal != 0, where&isService != 0, read, lost}
}

// The longest times and the largest counts that a configuration has. Longer than
// ipvsadm's, a persistence is refused.
const (
	mostSeconds     = 365 * 24 * 60 * 60
	mostCount       = 1000
	mostPersistence = 31 * 24 * 60 * 60
)

const (
	noMail   = "mail is sent as daemon.mail says, once for each change"
	noLogin  = "no check logs in"
	notUsed  = "not needed"
	refusing = "ldirectord refuses it: "
)

var directives = map[string]directive{
	"checktimeout":     directiveOf(isGlobal|isService, ldNumber(mostSeconds), ""),
	"negotiatetimeout": directiveOf(isGlobal|isService, ldNumber(mostSeconds), ""),
	"checkinterval":    directiveOf(isGlobal|isService, ldNumber(mostSeconds), ""),
	"checkcount":       directiveOf(isGlobal|isService, ldNumber(mostCount), ""),
	"failurecount":     directiveOf(isGlobal|isService, ldNumber(mostCount), ""),
	"connecttimeout":   directiveOf(isGlobal|isService, ldRefused("write negotiatetimeout"), ""),
	"timeout":          directiveOf(isGlobal, ldRefused("write checktimeout and negotiatetimeout"), ""),
	"quiescent":        directiveOf(isGlobal|isService, ldYesNo, ""),
	"fallback":         directiveOf(isGlobal|isService, ldAny, ""),
	"fallback6":        directiveOf(isGlobal|isService, ldAny, ""),
	"fallbackcommand":  directiveOf(isGlobal|isService, ldCommand, "use quorum_down and quorum_up of the service"),
	"emailalert":       directiveOf(isGlobal|isService, ldSome, ""),
	"emailalertfreq":   directiveOf(isGlobal|isService, ldAny, noMail),
	"emailalertstatus": directiveOf(isGlobal|isService, ldAny, noMail),
	"emailalertfrom":   directiveOf(isGlobal, ldAny, noMail),
	"smtp":             directiveOf(isGlobal|isService, ldAny, noMail),
	"cleanstop":        directiveOf(isGlobal|isService, ldYesNo, notUsed),

	"autoreload":     directiveOf(isGlobal, ldYesNo, ""),
	"callback":       directiveOf(isGlobal, ldQuoted, "no program is run when the file changes"),
	"logfile":        directiveOf(isGlobal, ldQuoted, notUsed),
	"execute":        directiveOf(isGlobal, ldAny, "import the file of the other ldirectord also"),
	"fork":           directiveOf(isGlobal, ldYesNo, notUsed),
	"supervised":     directiveOf(isGlobal, ldYesNo, notUsed),
	"readdquiescent": directiveOf(isGlobal, ldYesNo, notUsed),
	"maintenancedir": directiveOf(isGlobal, ldAny, "take a server out with imbang maintenance"),

	"real":         directiveOf(isService, ldAny, ""),
	"real6":        directiveOf(isService, ldAny, ""),
	"request":      directiveOf(isService, ldQuoted, ""),
	"receive":      directiveOf(isService, ldQuoted, ""),
	"checktype":    directiveOf(isService, ldChecktype, ""),
	"checkcommand": directiveOf(isService, ldCommand, ""),
	"checkport":    directiveOf(isService, ldNumber(65535), ""),
	"login":        directiveOf(isService, ldQuoted, noLogin),
	"passwd":       directiveOf(isService, ldQuoted, noLogin),
	"database":     directiveOf(isService, ldQuoted, noLogin),
	"secret":       directiveOf(isService, ldQuoted, noLogin),
	"load":         directiveOf(isService, ldQuoted, noLogin),
	"scheduler":    directiveOf(isService, ldFound(`[a-z]+`, "want lowercase letters"), ""),
	"schedflags":   directiveOf(isService, ldFound(`\S+`, "want flags"), ""),
	"persistent":   directiveOf(isService, ldNumber(mostPersistence), ""),
	"netmask":      directiveOf(isService, ldAny, ""),
	"protocol":     directiveOf(isService, ldWord(ldWordForm, "tcp", "udp", "fwm"), ""),
	"ops":          directiveOf(isService, ldYesNo, ""),
	"service": directiveOf(isService, ldWord(ldWordForm, "dns", "ftp", "http", "https", "http_proxy", "imap", "imaps", "ldap", "ldaps", "nntp", "mysql", "none", "oracle", "pop", "pops",
		"radius", "pgsql", "sip", "smtp", "submission", "simpletcp"), ""),
	"httpmethod":  directiveOf(isService, ldMethod, ""),
	"virtualhost": directiveOf(isService, ldHost, ""),
	"monitorfile": directiveOf(isService, ldCommand, "imbang events lists what checks found"),
	"servicename": directiveOf(isService, ldAny, ""),
	"comment":     directiveOf(isService, ldAny, ""),
}

var (
	ldDigits   = regexp.MustCompile(`\d+`)
	ldWordForm = regexp.MustCompile(`\w+`)
	ldDashed   = regexp.MustCompile(`[\w-]+`)
	ldInside   = regexp.MustCompile(`^"(.*)"`)
	ldHosts    = regexp.MustCompile(`^"?([^"]*)"?`)
)

// ldNumber is the first digits of a value.
func ldNumber(most int) form {
	return func(raw string) (string, string, bool) {
		text := ldDigits.FindString(raw)
		n, err := strconv.Atoi(text)
		switch {
		case text == "":
			return "", refusing + "want a number above 0; left out", false
		case err == nil && n == 0:
			return "", "want a number above 0: left out", false
		case err != nil || n > most:
			return strconv.Itoa(most), fmt.Sprintf("the most is %d, which is written", most), true
		}
		return strconv.Itoa(n), "", true
	}
}

func ldYesNo(raw string) (value, note string, ok bool) {
	value, _, _ = strings.Cut(raw, "#")
	switch value = strings.TrimSpace(value); {
	case value != "yes" && value != "no":
		return "", refusing + "want yes or no; left out", false
	case value != raw:
		return value, refusing + "nothing may be behind yes or no; read as " + value, true
	}
	return value, "", true
}

func ldAny(raw string) (value, note string, ok bool) { return strings.TrimSpace(raw), "", true }

func ldSome(raw string) (value, note string, ok bool) {
	if value = strings.Trim(raw, `"`); value == "" {
		return "", refusing + "it is empty; left out", false
	}
	return value, "", true
}

// ldQuoted is the text between the first quote and the last.
func ldQuoted(raw string) (value, note string, ok bool) {
	m := ldInside.FindStringSubmatch(raw)
	switch {
	case m == nil:
		return "", refusing + "want it in double quotes; left out", false
	case m[1] == "":
		return "", refusing + "it is empty; left out", false
	}
	return m[1], "", true
}

// ldCommand is a text with or without quotes.
func ldCommand(raw string) (value, note string, ok bool) {
	if m := ldInside.FindStringSubmatch(raw); m != nil {
		raw = m[1]
	}
	if raw == "" {
		return "", refusing + "it is empty; left out", false
	}
	return raw, "", true
}

func ldHost(raw string) (value, note string, ok bool) {
	return strings.TrimSpace(ldHosts.FindStringSubmatch(raw)[1]), "", true
}

func ldMethod(raw string) (value, note string, ok bool) {
	if value = strings.ToUpper(ldWordForm.FindString(raw)); value == "GET" || value == "HEAD" {
		return value, "", true
	}
	return "", refusing + "want GET or HEAD; left out", false
}

// ldChecktype is a number, wherever it stands, or a word.
func ldChecktype(raw string) (value, note string, ok bool) {
	if n := ldDigits.FindString(raw); n != "" {
		return n, "", true
	}
	return ldWord(ldDashed, "connect", "negotiate", "ping", "off", "on", "external", "external-perl")(raw)
}

// ldFound is the first part of a value that has a form.
func ldFound(pattern, want string) form {
	re := regexp.MustCompile(pattern)
	return func(raw string) (string, string, bool) {
		value := re.FindString(raw)
		return value, map[bool]string{true: refusing + want + "; left out"}[value == ""], value != ""
	}
}

// ldWord is the first word of a value, one of those that are known.
func ldWord(re *regexp.Regexp, known ...string) form {
	return func(raw string) (string, string, bool) {
		value := re.FindString(raw)
		if slices.Contains(known, value) {
			return value, "", true
		}
		return "", refusing + "want " + strings.Join(known, ", ") + "; left out", false
	}
}

func ldRefused(remedy string) form {
	return func(string) (string, string, bool) { return "", refusing + remedy, false }
}
