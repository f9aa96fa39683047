// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/crypto/bcrypt"
	"modernc.org/sqlite" // the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Known is a user that every new database has, with this password and token.
const (
	Known         = "known"
	knownPassword = "secret"
	knownToken    = "known"
)

// hashCost keeps a password's hash at about a millisecond of CPU: an
// application's ordinary cost of 10 would measure nothing else.
const hashCost = bcrypt.MinCost

// application registers users, lets them in and tells them who they are. Its
// database is one file, which several may share as workers of one site do.
type application struct {
	*http.ServeMux
	db *sql.DB
}

func (*application) SetSpeed(float64) error { return errFixed }

// NewApplication opens the application's database, and makes it if there is
// none.
func NewApplication(ctx context.Context, file string) (Server, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", file, err)
	}
	a := &application{http.NewServeMux(), db}
	if err := a.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("database %s: %w", file, err), db.Close())
	}
	a.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "up"})
	})
	a.HandleFunc("POST /api/auth/register", a.register)
	a.HandleFunc("POST /api/auth/login", a.login)
	a.HandleFunc("GET /api/me", a.me)
	return a, nil
}

func (a *application) prepare(ctx context.Context) error {
	hash, err := bcrypt.GenerateFromPassword([]byte(knownPassword), hashCost)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		query string
		args  []any
	}{
		{query: `CREATE TABLE IF NOT EXISTS users (name TEXT PRIMARY KEY, hash BLOB NOT NULL) WITHOUT ROWID`},
		{query: `CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID`},
		{`INSERT OR IGNORE INTO users VALUES (?, ?)`, []any{Known, hash}},
		{`INSERT OR IGNORE INTO tokens VALUES (?, ?)`, []any{knownToken, Known}},
	} {
		if _, err := a.db.ExecContext(ctx, step.query, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// credentials are the body of both POST requests.
type credentials struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

func read(w http.ResponseWriter, r *http.Request) (c credentials, ok bool) {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&c)
	if err != nil || c.Name == "" || c.Password == "" || len(c.Password) > 72 {
		reply(w, http.StatusBadRequest, problem("want a JSON object with name and password"))
		return c, false
	}
	return c, true
}

// register makes a user. A name that is taken is a conflict.
func (a *application) register(w http.ResponseWriter, r *http.Request) {
	c, ok := read(w, r)
	if !ok {
		return
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(c.Password), hashCost)
	if err == nil {
		_, err = a.db.ExecContext(r.Context(), `INSERT INTO users VALUES (?, ?)`, c.Name, hash)
	}
	var failed *sqlite.Error
	switch {
	case err == nil:
		reply(w, http.StatusCreated, map[string]string{"name": c.Name})
	case errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		reply(w, http.StatusConflict, problem("the name is taken"))
	default:
		broken(w, err)
	}
}

// login gives a token to who knows the password.
func (a *application) login(w http.ResponseWriter, r *http.Request) {
	c, ok := read(w, r)
	if !ok {
		return
	}
	var hash []byte
	err := a.db.QueryRowContext(r.Context(), `SELECT hash FROM users WHERE name = ?`, c.Name).Scan(&hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		broken(w, err)
		return
	}
	if err != nil || bcrypt.CompareHashAndPassword(hash, []byte(c.Password)) != nil {
		reply(w, http.StatusUnauthorized, problem("unknown name or wrong password"))
		return
	}
	token := rand.Text()
	if _, err := a.db.ExecContext(r.Context(), `INSERT INTO tokens VALUES (?, ?)`, token, c.Name); err != nil {
		broken(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"token": token})
}

// me tells the owner of a token who that is. The token is a bearer's (RFC 6750,
// 2.1) or, for tools that set no header, a parameter (2.3).
func (a *application) me(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		token = r.URL.Query().Get("access_token")
	}
	var name string
	switch err := a.db.QueryRowContext(r.Context(), `SELECT name FROM tokens WHERE token = ?`, token).Scan(&name); {
	case err == nil:
		reply(w, http.StatusOK, map[string]string{"name": name})
	case errors.Is(err, sql.ErrNoRows):
		reply(w, http.StatusUnauthorized, problem("log in first"))
	default:
		broken(w, err)
	}
}

func problem(text string) map[string]string { return map[string]string{"error": text} }

func broken(w http.ResponseWriter, err error) {
	reply(w, http.StatusInternalServerError, problem(err.Error()))
}

func reply(w http.ResponseWriter, status int, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has gone has no reply
}
