// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	health1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// talker is a service whose stream sends back what it gets. How streams end is noted.
type talker struct{ ends chan error }

var talkerService = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(server any, s grpc.ServerStream) error {
		sent, _ := metadata.FromIncomingContext(s.Context())
		s.SetTrailer(metadata.Pairs("x-end", strings.Join(sent["x-begin"], "")))
		for {
			var m wrapperspb.StringValue
			if err := s.RecvMsg(&m); err != nil {
				server.(*talker).ends <- err
				return status.Error(codes.DataLoss, "as asked")
			}
			if err := s.SendMsg(&m); err != nil {
				return err
			}
		}
	}}},
}

// A gRPC client: calls, streams either way, metadata, trailers with any status, deadlines and servers
// that are not there.
func TestLayer7GRPC(t *testing.T) {
	w := newProxied(t, streamsConfig())
	echo, healths := &talker{ends: make(chan error, 10)}, health.NewServer()
	server := grpc.NewServer()
	health1.RegisterHealthServer(server, healths)
	server.RegisterService(&talkerService, echo)
	l := w.listen("127.0.2.2:8000")
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+webTLS, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.host.Dial(ctx, "tcp", to) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := health1.NewHealthClient(conn)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 50 {
				if r, err := client.Check(ctx, &health1.HealthCheckRequest{}); err != nil || r.Status != health1.HealthCheckResponse_SERVING {
					t.Errorf("a call: %v, %v", r, err)
					return
				}
			}
		})
	}
	all.Wait()
	if _, err := client.Check(ctx, &health1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a call that fails: %v", err)
	}

	// A server's stream sends when there is something.
	watch, err := client.Watch(ctx, &health1.HealthCheckRequest{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []health1.HealthCheckResponse_ServingStatus{health1.HealthCheckResponse_SERVICE_UNKNOWN, health1.HealthCheckResponse_SERVING, health1.HealthCheckResponse_NOT_SERVING} {
		if i > 0 {
			healths.SetServingStatus("shop", want)
		}
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("message %d of a stream: %v, %v, expected %v", i, r, err, want)
		}
	}

	// A stream both ways, each message after the reply to the one before.
	stream := func(ctx context.Context) grpc.ClientStream {
		s, err := conn.NewStream(ctx, &talkerService.Streams[0], "/test.Echo/Talk")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	exchange := func(s grpc.ClientStream, text string) error {
		var m wrapperspb.StringValue
		if err := s.SendMsg(wrapperspb.String(text)); err != nil {
			return err
		}
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		if m.Value != text {
			t.Errorf("%d bytes come back as %d", len(text), len(m.Value))
		}
		return nil
	}
	s := stream(metadata.AppendToOutgoingContext(ctx, "x-begin", "seen"))
	for _, text := range append([]string{strings.Repeat("x", 1_000_000)}, strings.Split(strings.Repeat("y", 100), "")...) {
		if err := exchange(s, text); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "as asked" {
		t.Errorf("the end of a stream: %v", err)
	}
	if got := s.Trailer()["x-end"]; len(got) != 1 || got[0] != "seen" {
		t.Errorf("the trailer is %q", got)
	}

	// A client that gives up: the server knows, though HAProxy 2.6 says it as a regular end.
	<-echo.ends
	short, end := context.WithCancel(ctx)
	defer end()
	s = stream(short)
	if err := exchange(s, "x"); err != nil {
		t.Fatal(err)
	}
	end()
	if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Canceled {
		t.Errorf("a stream that is canceled: %v", err)
	}
	select {
	case err := <-echo.ends:
		t.Logf("for the server, a stream that is canceled ends with %v", err)
	case <-time.After(time.Minute):
		t.Error("the server does not know that the client has given up")
	}

	// An open stream stays through a reload.
	s = stream(ctx)
	if err := exchange(s, "before"); err != nil {
		t.Fatal(err)
	}
	reloads := w.haproxy().Reloads
	w.configure(strings.Replace(streamsConfig(), "name: rpc\n", "name: rpc\n    retries: 2\n", 1))
	w.do("reload")
	w.await("HAProxy has reloaded", func() bool { return w.haproxy().Reloads > reloads })
	if err := exchange(s, "after"); err != nil {
		t.Errorf("a stream through a reload: %v", err)
	}
	_ = s.CloseSend()

	server.Stop()
	if _, err := client.Check(ctx, &health1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without a server: %v", err)
	}
}
