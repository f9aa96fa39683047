// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"imbang/internal/daemon/events"
)

// Route is one request that the interface knows.
type Route struct {
	Method, Path, Summary string
	Changes               bool         // only root and group imbang may send it
	Note                  string       // further conditions, a sentence
	Request               reflect.Type // of the body; nil: none
	Reply                 reflect.Type
	Stream                bool    // the reply is JSON Lines, and goes on
	Query                 []Query // parameters of the path
	serve                 func(*Endpoint, http.ResponseWriter, *http.Request) error
}

// Query is a parameter of a path.
type Query struct{ Name, Summary string }

// Routes are all requests.
func Routes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: "/v1/status", Summary: "Services, servers, checks, orders, drift and alarms", Reply: reflect.TypeFor[Status](),
			Note:  "Only root and members of group " + Group + " get the text of reload_error.",
			serve: (*Endpoint).status,
		},
		{
			Method: http.MethodGet, Path: "/v1/events", Summary: "What happened, one event a line", Reply: reflect.TypeFor[events.Event](), Stream: true,
			Query: []Query{{"last", "how many events to begin with; default 100"}, {"follow", "true: go on with new events"}},
			serve: (*Endpoint).events,
		},
		{
			Method: http.MethodPost, Path: "/v1/plan", Summary: "What applying a configuration would change",
			Request: reflect.TypeFor[PlanRequest](), Reply: reflect.TypeFor[Plan](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q PlanRequest) (*Plan, error) { return s.plan(callerOf(r), q) })
			},
			Changes: true, // it reads files with the daemon's permissions
			Note:    "Only root may name a file.",
		},
		{
			Method: http.MethodPost, Path: "/v1/reload", Summary: "Apply the configuration file again", Changes: true,
			Request: reflect.TypeFor[ReloadRequest](), Reply: reflect.TypeFor[Plan](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q ReloadRequest) (*Plan, error) { return s.daemon.Reload(callerOf(r), q) })
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/order", Summary: "Drain a server, take it into maintenance, set its weight, or enable it again", Changes: true,
			Request: reflect.TypeFor[OrderRequest](), Reply: reflect.TypeFor[OrderReply](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q OrderRequest) (*OrderReply, error) { return s.daemon.Order(callerOf(r), q) })
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/node", Summary: "Drain this node of layer 7, or enable it again", Changes: true,
			Request: reflect.TypeFor[NodeRequest](), Reply: reflect.TypeFor[NodeReply](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q NodeRequest) (*NodeReply, error) { return s.daemon.OrderNode(callerOf(r), q) })
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/why", Summary: "What becomes of a request of HTTP: its listener, route, backend and servers", Changes: true, // it quotes the configuration
			Request: reflect.TypeFor[WhyRequest](), Reply: reflect.TypeFor[WhyReply](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q WhyRequest) (*WhyReply, error) { return s.daemon.Why(q) })
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/barrier", Summary: "Wait until all backups of the replication have applied what happened up to now", Changes: true,
			Note:    "The reply comes once they have, or after the timeout.",
			Request: reflect.TypeFor[BarrierRequest](), Reply: reflect.TypeFor[BarrierReply](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q BarrierRequest) (*BarrierReply, error) { return s.daemon.Barrier(r.Context(), q) })
			},
		},
		{
			Method: http.MethodGet, Path: "/v1/peer-differences", Summary: "Keys of the configuration that differ between the directors of a pair", Changes: true,
			Reply: reflect.TypeFor[Differences](),
			serve: func(s *Endpoint, w http.ResponseWriter, _ *http.Request) error {
				return answer(w)(s.daemon.Differences())
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/peer-plan", Summary: "What this director's configuration would change on its peer", Changes: true,
			Request: reflect.TypeFor[PeerRequest](), Reply: reflect.TypeFor[PeerPlan](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q PeerRequest) (*PeerPlan, error) { return s.daemon.PeerPlan(r.Context(), callerOf(r), q) })
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/peer-push", Summary: "Apply this director's configuration on its peer", Changes: true,
			Note:    "Only root may do so: the peer's daemon runs the commands of the configuration.",
			Request: reflect.TypeFor[PeerRequest](), Reply: reflect.TypeFor[PeerPlan](),
			serve: func(s *Endpoint, w http.ResponseWriter, r *http.Request) error {
				return with(w, r, func(q PeerRequest) (*PeerPlan, error) { return s.push(r.Context(), callerOf(r), q) })
			},
		},
		{
			Method: http.MethodGet, Path: "/v1/openapi.json", Summary: "This description", Reply: reflect.TypeFor[map[string]any](),
			serve: func(_ *Endpoint, w http.ResponseWriter, _ *http.Request) error {
				begin(w)
				w.Header().Set("Content-Type", "application/json")
				_, err := w.Write(OpenAPI())
				return err
			},
		},
	}
}

// hidden is what users see who may not read the configuration: errors quote it.
const hidden = "the configuration was refused; root and members of group " + Group + " see why"

func (s *Endpoint) status(w http.ResponseWriter, r *http.Request) error {
	st, err := s.daemon.Status()
	if err == nil && peerBy(r).class == ofOthers {
		if st.ReloadError != "" {
			st.ReloadError = hidden
		}
		if st.Proxy != nil {
			st.Proxy.Error = st.Proxy.PublicError
		}
	}
	return answer(w)(st, err)
}

// plan plans. The daemon reads a file with its own permissions, and errors quote it, so
// only who may read every file names one.
func (s *Endpoint) plan(by Caller, q PlanRequest) (*Plan, error) {
	if q.File != "" && by.UID != 0 {
		return nil, &refusal{http.StatusForbidden, fmt.Errorf(
			"not permitted: only root may name a file, since the daemon reads it with root's permissions: name none for the daemon's own configuration, or use sudo imbang plan %s", q.File)}
	}
	return s.daemon.Plan(q)
}

// push applies a configuration that only root can write, where only root can.
func (s *Endpoint) push(ctx context.Context, by Caller, q PeerRequest) (*PeerPlan, error) {
	if by.UID != 0 {
		return nil, &refusal{http.StatusForbidden, errors.New("not permitted: only root may write the peer's configuration file: sudo imbang peer push")}
	}
	return s.daemon.PeerPush(ctx, by, q)
}

// answer writes a reply, or hands an error on.
func answer(w http.ResponseWriter) func(reply any, err error) error {
	return func(reply any, err error) error {
		if err != nil {
			return err
		}
		begin(w)
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(reply)
	}
}

// with reads a request of exactly one JSON value, without unknown fields.
func with[Q, R any](w http.ResponseWriter, r *http.Request, do func(Q) (*R, error)) error {
	var q Q
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return &refusal{http.StatusBadRequest, fmt.Errorf("the request is not valid: %w", err)}
	}
	if decoder.More() {
		return &refusal{http.StatusBadRequest, errors.New("the request is not valid: more than one JSON value")}
	}
	reply, err := do(q)
	return answer(w)(reply, err)
}

// lastOf is how many events a request asks for.
func lastOf(r *http.Request) (int, error) {
	text := r.URL.Query().Get("last")
	if text == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, &refusal{http.StatusBadRequest, fmt.Errorf("last=%q: want a number", text)}
	}
	return n, nil
}

// events serves events, perhaps for ever.
func (s *Endpoint) events(w http.ResponseWriter, r *http.Request) error {
	last, err := lastOf(r)
	if err != nil {
		return err
	}
	following := r.URL.Query().Get("follow") == "true"
	if following {
		leave, err := s.follow.take(peerBy(r))
		if err != nil {
			return err
		}
		defer leave()
	}
	before, after, stop := s.daemon.Events().Follow(last)
	defer stop()
	w.Header().Set("Content-Type", "application/jsonl")
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	for _, e := range before {
		if err := send(w, out, e); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	if !following {
		return nil
	}
	begin(w)
	if err := flush.Flush(); err != nil {
		return nil //nolint:nilerr // likewise
	}
	for {
		select {
		case <-r.Context().Done():
			return nil
		case e, open := <-after:
			if !open || send(w, out, e) != nil || flush.Flush() != nil {
				return nil
			}
		}
	}
}
