// SPDX-License-Identifier: Apache-2.0

// Package serve is what the lab's built-in real servers run, each a process of
// its own in the namespace of a real server: a server of a stated capacity, and
// a small application with a database.
//
// Package server starts them; this one only answers. It imports nothing that
// measures or balances.
package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Server answers requests and can be told things while it does.
type Server interface {
	http.Handler
	// SetSpeed makes it serve a number of times as fast as it states.
	SetSpeed(speed float64) error
}

// Run serves at an address until the context or the commands end. A command is
// a line: "speed 0.5". Every reply carries the server's name in header.
func Run(ctx context.Context, s Server, listen, header, name string, commands io.Reader) error {
	web := &http.Server{
		Addr: listen, ReadHeaderTimeout: 30 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()[header] = []string{name} // as written: no canonical form
			s.ServeHTTP(w, r)
		}),
	}
	ended := make(chan error, 2)
	go func() { ended <- web.ListenAndServe() }()
	go func() { ended <- obey(s, commands) }()
	defer web.Close()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// obey carries out commands until the end of input: the process that gave them
// has ended.
func obey(s Server, commands io.Reader) error {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		if err := command(s, lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func command(s Server, line string) error {
	verb, value, _ := strings.Cut(line, " ")
	if verb != "speed" {
		return fmt.Errorf("command %q: want speed N", line)
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n > 0) {
		return fmt.Errorf("command %q: want a number above 0", line)
	}
	return s.SetSpeed(n)
}

var errFixed = errors.New("this server has no stated speed")
