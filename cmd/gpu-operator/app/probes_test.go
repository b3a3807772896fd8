package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// serving is a manager that starts what is added to it.
type serving struct {
	manager.Manager
	server *manager.Server
}

func (s *serving) Add(runnable manager.Runnable) error {
	s.server, _ = runnable.(*manager.Server)
	return nil
}

// Clients that leave their requests unfinished neither keep the kubelet waiting nor stay open.
func TestProbesAreServedWithinBounds(t *testing.T) {
	g, mgr := NewWithT(t), &serving{}
	ready := func(*http.Request) error { return nil }
	g.Expect(serve(t.Context(), mgr, "health probes", "127.0.0.1:0", probes(ready), nil)).To(Succeed())
	server, address := mgr.server.Server, mgr.server.Listener.Addr().String()
	g.Expect([]time.Duration{server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout}).
		To(HaveEach(And(BeNumerically(">", 0), BeNumerically("<=", 20*time.Second))))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.server.Start(ctx) }()
	t.Cleanup(func() { cancel(); g.Expect(<-ended).To(Succeed()) })
	var oldest net.Conn
	for range 150 {
		conn, err := net.Dial("tcp", address)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = conn.Close() })
		if oldest == nil {
			oldest = conn
		}
	}
	answer, err := http.Get("http://" + address + "/healthz")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Body.Close()).To(Succeed())
	g.Expect(answer.StatusCode).To(Equal(http.StatusOK))
	// It was closed before the answer, which is earlier than a header may take.
	g.Expect(oldest.SetReadDeadline(time.Now().Add(3 * time.Second))).To(Succeed())
	_, err = oldest.Read(make([]byte, 1))
	g.Expect(err).To(Or(MatchError(io.EOF), MatchError(ContainSubstring("reset by peer"))), "it is closed")
}

func TestProbes(t *testing.T) {
	for path, want := range map[string][2]int{
		"/healthz": {200, 200}, "/healthz/ping": {200, 200}, "/readyz": {200, 500},
		"/readyz/caches": {200, 500}, "/": {404, 404},
	} {
		for i, err := range []error{nil, errors.New("the caches are not filled")} {
			answer := httptest.NewRecorder()
			probes(func(*http.Request) error { return err }).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			if answer.Code != want[i] {
				t.Errorf("%s with %v: %d, want %d", path, err, answer.Code, want[i])
			}
		}
	}
}

// With the address 0 there is no server.
func TestNoProbes(t *testing.T) {
	mgr := &serving{}
	g := NewWithT(t)
	g.Expect(addProbes(t.Context(), mgr, "0")).To(Succeed())
	g.Expect(mgr.server).To(BeNil())
}
