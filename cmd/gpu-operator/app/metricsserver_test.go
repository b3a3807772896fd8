package app

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// served starts a server with these bounds, and returns its address.
func served(t *testing.T, bounds serverBounds) string {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })
	server, listener, err := bounds.serve("127.0.0.1:0", handler, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		NewWithT(t).Expect(<-ended).To(MatchError(http.ErrServerClosed))
	})
	return listener.Addr().String()
}

// Connections whose header does not end are closed, and so are those that are kept without a request. More than the
// server accepts at a time do not keep others away for good.
func TestUnfinishedRequestsEnd(t *testing.T) {
	const many = 20
	g := NewWithT(t)
	bounds := metricsBounds()
	g.Expect(bounds.connections).To(BeNumerically("<=", 100))
	g.Expect([]time.Duration{bounds.header, bounds.read}).To(HaveEach(
		And(BeNumerically(">", 0), BeNumerically("<=", 10*time.Second))), "150 connections were all open after 14 s")
	g.Expect([]time.Duration{bounds.write, bounds.idle}).To(HaveEach(BeNumerically(">", 0)))
	bounds.header, bounds.read, bounds.idle, bounds.connections = time.Millisecond, time.Millisecond, time.Millisecond, 3
	address := served(t, bounds)
	var open []net.Conn
	for range many {
		conn, err := net.Dial("tcp", address)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\n")
		open = append(open, conn)
	}
	for _, conn := range open {
		g.Expect(conn.SetReadDeadline(time.Now().Add(time.Minute))).To(Succeed())
		_, err := io.Copy(io.Discard, conn)
		if err != nil {
			g.Expect(err).To(MatchError(ContainSubstring("reset by peer")), "the server has closed it")
		}
	}
}

func TestAKeptConnectionEnds(t *testing.T) {
	g := NewWithT(t)
	bounds := metricsBounds()
	bounds.idle = time.Millisecond
	conn, err := net.Dial("tcp", served(t, bounds))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conn.SetReadDeadline(time.Now().Add(time.Minute))).To(Succeed())
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	g.Expect(err).NotTo(HaveOccurred())
	text, err := io.ReadAll(answer.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Body.Close()).To(Succeed())
	g.Expect(strings.TrimSpace(string(text))).To(Equal("metrics"))
	_, err = reader.ReadByte()
	g.Expect(err).To(MatchError(io.EOF))
}
