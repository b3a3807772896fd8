package boundedserver

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// served starts a server with these bounds, and returns its address. Requests with any token are authorized.
func served(t *testing.T, bounds Bounds) string {
	t.Helper()
	return servedWith(t, bounds, nil)
}

func servedWith(t *testing.T, bounds Bounds, config *tls.Config) string {
	t.Helper()
	metrics := Keeping(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			http.Error(w, "send a token", http.StatusUnauthorized)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	server, listener, err := bounds.Serve(t.Context(), "127.0.0.1:0", mux, config)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		// Shutdown would wait for requests that are not finished.
		_ = server.Close()
		NewWithT(t).Expect(<-ended).To(MatchError(http.ErrServerClosed))
	})
	return listener.Addr().String()
}

// unbounded are bounds in time that no test reaches, with this limit of connections.
func unbounded(connections int) Bounds {
	bounds := DefaultBounds()
	bounds.Header, bounds.Read, bounds.Write, bounds.Idle = time.Hour, time.Hour, time.Hour, time.Hour
	bounds.Connections = connections
	return bounds
}

// begin opens a connection, and sends the beginning of a request.
func begin(t *testing.T, address, text string) net.Conn {
	t.Helper()
	g := NewWithT(t)
	conn, err := net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, text)
	g.Expect(conn.SetReadDeadline(time.Now().Add(scrapeTimeout))).To(Succeed())
	return conn
}

const (
	// scrapeTimeout is the default of Prometheus.
	scrapeTimeout = 10 * time.Second
	unfinished    = "GET /metrics HTTP/1.1\r\nHost: a\r\n"
	refused       = unfinished + "\r\n"
	allowed       = unfinished + "Authorization: Bearer a\r\n\r\n"
)

// expectEnd expects that the server closes the connection, whatever it answers before.
func expectEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("reset by peer")), "the server has not closed it")
	}
}

// expectMetrics expects the answer to an authorized request, and that the connection is kept.
func expectMetrics(t *testing.T, conn net.Conn) {
	t.Helper()
	g := NewWithT(t)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	g.Expect(err).NotTo(HaveOccurred())
	text, err := io.ReadAll(answer.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Body.Close()).To(Succeed())
	g.Expect(string(text)).To(Equal("metrics"))
	g.Expect(answer.Close).To(BeFalse(), "the connection is kept")
}

// Connections whose header does not end are closed.
func TestUnfinishedRequestsEnd(t *testing.T) {
	g := NewWithT(t)
	bounds := DefaultBounds()
	g.Expect([]time.Duration{bounds.Header, bounds.Read}).To(HaveEach(
		And(BeNumerically(">", 0), BeNumerically("<=", 10*time.Second))), "150 connections were all open after 14 s")
	g.Expect([]time.Duration{bounds.Write, bounds.Idle}).To(HaveEach(
		And(BeNumerically(">", 0), BeNumerically("<=", 20*time.Second))))
	g.Expect(bounds.HeaderBytes).To(And(BeNumerically(">=", 8<<10), BeNumerically("<=", 64<<10)))
	bounds = unbounded(100)
	bounds.Header = time.Millisecond
	address := served(t, bounds)
	for range 20 {
		expectEnd(t, begin(t, address, unfinished))
	}
}

// The oldest connections of clients that have shown no right are closed when there are too many.
func TestConnectionsAreLimited(t *testing.T) {
	NewWithT(t).Expect(DefaultBounds().Connections).To(BeNumerically("<=", 100))
	address := served(t, unbounded(3))
	var open []net.Conn
	for range 20 {
		open = append(open, begin(t, address, unfinished))
	}
	for _, conn := range open[:17] {
		expectEnd(t, conn)
	}
}

// Refused clients that keep their connections and clients that do not finish their headers do not keep away one with
// rights, whose connection stays whatever they do afterwards.
func TestRefusedClientsDoNotKeepOthersAway(t *testing.T) {
	bounds := unbounded(DefaultBounds().Connections)
	for name, text := range map[string]string{"refused": refused, "unfinished": unfinished, "silent": ""} {
		t.Run(name, func(t *testing.T) {
			address := served(t, bounds)
			fill := func() {
				for range 2 * bounds.Connections {
					begin(t, address, text)
				}
			}
			fill()
			scraper := begin(t, address, allowed)
			expectMetrics(t, scraper)
			fill()
			_, err := io.WriteString(scraper, allowed)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			expectMetrics(t, scraper)
		})
	}
}

// A connection ends with an answer that is not the metrics.
func TestRefusedConnectionsEnd(t *testing.T) {
	address := served(t, unbounded(3))
	expectEnd(t, begin(t, address, refused))
	expectEnd(t, begin(t, address, "GET /other HTTP/1.1\r\nHost: a\r\n\r\n"))
}

// A client that opens connections faster than others are authorized closes its own ones.
func TestExcessOfOneAddressIsItsOwn(t *testing.T) {
	g := NewWithT(t)
	listener := &limitedListener{max: 4}
	var closed []string
	open := func(name, source string, authorized bool) {
		excess := listener.add(&limitedConn{Conn: named{name: name, closed: &closed}, listener: listener, source: source,
			authorized: authorized})
		if excess != nil {
			g.Expect(excess.Close()).To(Succeed())
		}
	}
	open("scraper", "10.0.0.1", true)
	open("new scraper", "10.0.0.2", false)
	for i := range 5 {
		open(fmt.Sprint(i), "10.0.0.3", false)
	}
	g.Expect(closed).To(Equal([]string{"0", "1", "2"}))
	g.Expect(listener.open).To(HaveLen(4))
}

// named is a connection that notes its end.
type named struct {
	net.Conn
	name   string
	closed *[]string
	from   net.Addr
	// err is what Close returns.
	err error
}

func (n named) Close() error {
	*n.closed = append(*n.closed, n.name)
	return n.err
}

func (n named) RemoteAddr() net.Addr { return n.from }

// offered is a listener with a connection.
type offered struct {
	net.Listener
	conn net.Conn
}

func (o offered) Accept() (net.Conn, error) { return o.conn, nil }

// The source of a connection has no port, so that those of one client count together.
func TestSourceOfConnections(t *testing.T) {
	for source, from := range map[string]net.Addr{
		"10.0.0.1": &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}, "/run/a": &net.UnixAddr{Name: "/run/a"},
	} {
		g := NewWithT(t)
		var closed []string
		conn := named{name: "a", closed: &closed, from: from, err: errors.New("closed already")}
		listener := &limitedListener{Listener: offered{conn: conn}, max: 1}
		accepted, err := listener.Accept()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(listener.open).To(HaveLen(1))
		g.Expect(listener.open[0].source).To(Equal(source))
		g.Expect(accepted.Close()).To(MatchError("closed already"))
		g.Expect(listener.open).To(BeEmpty())
	}
}

func TestServeSetsBounds(t *testing.T) {
	g := NewWithT(t)
	bounds := Bounds{Header: 1, Read: 2, Write: 3, Idle: 4, Connections: 5, HeaderBytes: 6}
	server, listener, err := bounds.Serve(t.Context(), "127.0.0.1:0", http.NotFoundHandler(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listener.Close()).To(Succeed())
	g.Expect([]time.Duration{server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout}).
		To(Equal([]time.Duration{1, 2, 3, 4}))
	limited, isLimited := listener.(*limitedListener)
	g.Expect(isLimited).To(BeTrue())
	g.Expect(limited.max).To(Equal(5))
	g.Expect(server.MaxHeaderBytes).To(Equal(6))
	_, _, err = bounds.Serve(t.Context(), "127.0.0.1:none", http.NotFoundHandler(), nil)
	g.Expect(err).To(HaveOccurred())
}

// The connection of an authorized request is kept with TLS, too.
func TestTLSConnectionIsKept(t *testing.T) {
	g := NewWithT(t)
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	address := servedWith(t, unbounded(1), &tls.Config{Certificates: other.TLS.Certificates})
	roots := x509.NewCertPool()
	roots.AddCert(other.Certificate())
	client := &tls.Config{RootCAs: roots, ServerName: "example.com"}
	scraper := tls.Client(begin(t, address, ""), client)
	for range 2 {
		_, err := io.WriteString(scraper, allowed)
		g.Expect(err).NotTo(HaveOccurred())
		expectMetrics(t, scraper)
		expectEnd(t, begin(t, address, ""))
	}
}

func TestAKeptConnectionEnds(t *testing.T) {
	bounds := unbounded(3)
	bounds.Idle = time.Millisecond
	conn := begin(t, served(t, bounds), allowed)
	expectMetrics(t, conn)
	expectEnd(t, conn)
}
