package boundedserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

// limitedListener has at most max connections open at a time. Beyond that it closes one that no authorized request has
// used: the oldest of the source address with most of them. So a client without rights takes only its own connections
// away, and never keeps a new client waiting, whatever it leaves unfinished.
type limitedListener struct {
	net.Listener
	max int

	mu sync.Mutex
	// open are the connections, the oldest first.
	open []*limitedConn
}

// limitedConn is a connection of a limitedListener.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	// source is the address of the client, without its port.
	source string
	// authorized: an authorized request has used the connection. The listener's mutex guards it.
	authorized bool
}

// Accept returns the next connection, which may be closed already.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	source, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		source = conn.RemoteAddr().String()
	}
	made := &limitedConn{Conn: conn, listener: l, source: source}
	if excess := l.add(made); excess != nil {
		_ = excess.Close()
	}
	return made, nil
}

// add adds a connection, and returns the one to close; nil if there are not too many.
func (l *limitedListener) add(conn *limitedConn) *limitedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, conn)
	if len(l.open) <= l.max {
		return nil
	}
	bySource := map[string]int{}
	for _, one := range l.open {
		if !one.authorized {
			bySource[one.source]++
		}
	}
	var excess *limitedConn
	for _, one := range l.open {
		if !one.authorized && (excess == nil || bySource[one.source] > bySource[excess.source]) {
			excess = one
		}
	}
	return excess // conn is not authorized yet, so that there is one.
}

// Close closes the connection, which then no longer counts.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(one *limitedConn) bool { return one == c })
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// connKey is the key of a limitedConn in the context of its requests.
type connKey struct{}

// withConn returns the context for the requests of a connection.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secure, isTLS := conn.(*tls.Conn); isTLS {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// closing lets connections end after each answer of next that is not one of Keeping.
func closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		next.ServeHTTP(w, r)
	})
}

// Keeping keeps the connections of requests that reach it, which are authorized.
func Keeping(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, limited := r.Context().Value(connKey{}).(*limitedConn); limited {
			conn.listener.mu.Lock()
			conn.authorized = true
			conn.listener.mu.Unlock()
		}
		w.Header().Del("Connection")
		next.ServeHTTP(w, r)
	})
}
