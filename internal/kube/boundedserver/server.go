package boundedserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Bounds limit what clients can hold of a server.
type Bounds struct {
	// Header, Read and Write bound one request: its header with the TLS handshake, all of it, and with its answer. Idle
	// is how long a connection waits for the next one.
	Header, Read, Write, Idle time.Duration
	// Connections is how many are open at a time; beyond that, see limitedListener.
	Connections int
	// HeaderBytes bounds a header.
	HeaderBytes int
	// KeepAll keeps each connection after its answers. Otherwise Keeping does so.
	KeepAll bool
}

// DefaultBounds suffices for some clients that scrape or probe, each within ten seconds. Those that scrape at least
// every 20 s keep their connections. An answer has more time than a review of a token (10 s).
func DefaultBounds() Bounds {
	return Bounds{
		Header: 5 * time.Second, Read: 10 * time.Second, Write: 15 * time.Second, Idle: 20 * time.Second,
		Connections: 64, HeaderBytes: 16 << 10,
	}
}

// Serve returns an HTTP server for the handler, and its listener; with TLS unless config is nil.
func (b Bounds) Serve(
	ctx context.Context, address string, handler http.Handler, config *tls.Config,
) (*http.Server, net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	listener = &limitedListener{Listener: listener, max: b.Connections}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	if !b.KeepAll {
		handler = closing(handler)
	}
	return &http.Server{
		Handler: handler, ConnContext: withConn, MaxHeaderBytes: b.HeaderBytes,
		ReadHeaderTimeout: b.Header, ReadTimeout: b.Read, WriteTimeout: b.Write, IdleTimeout: b.Idle,
	}, listener, nil
}
