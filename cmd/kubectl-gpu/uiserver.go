package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/cli/page"
)

// loopback is the only address that a page is served on.
const loopback = "127.0.0.1"

const (
	// readInterval is the least time between two reads of the cluster, and refreshInterval how often a page asks.
	readInterval    = 3 * time.Second
	refreshInterval = 5 * time.Second
	// headerTimeout bounds how long a client may take for its request.
	headerTimeout = 5 * time.Second
)

// livePage is the page of a cluster that is read again when someone asks for it.
type livePage struct {
	// read reads the cluster.
	read func(context.Context) (page.Input, error)
	now  func() time.Time

	// mu is held while the cluster is read: who asks meanwhile waits, and gets the same.
	mu sync.Mutex
	// shown is what was read last, with the failure of a later attempt, and tried when the last attempt ended.
	shown page.Input
	tried time.Time
}

// current returns what the page shows now.
func (p *livePage) current(ctx context.Context) page.Input {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.tried) >= readInterval {
		_ = p.renew(ctx) // The page shows it.
	}
	return p.shown
}

// renew reads the cluster. What a client that is gone has interrupted counts as not tried.
func (p *livePage) renew(ctx context.Context) error {
	fresh, err := p.read(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.tried = p.now()
	if err != nil {
		p.shown.Failure = err
		return err
	}
	p.shown = fresh
	return nil
}

// handler serves the page at a path of this port of the loopback address. Other users of the machine reach the port,
// too, so that the path is a secret, which no answer reveals.
//
// A site in the same browser can name this address, also by a name of its own (DNS rebinding). The Host header then has
// that name, and is refused. The other headers keep sites from reading the page, or showing it within one of theirs.
func (p *livePage) handler(port int, path string) http.Handler {
	hosts := []string{fmt.Sprintf("%s:%d", loopback, port), fmt.Sprintf("localhost:%d", port)}
	policy := page.Policy(true) + "; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		switch {
		case !slices.Contains(hosts, r.Host):
			http.Error(w, "open the address that kubectl gpu ui has printed: this page has no other name", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
		case subtle.ConstantTimeCompare([]byte(r.URL.Path), []byte(path)) == 0:
			http.Error(w, "open the address that kubectl gpu ui has printed: there is no other page", http.StatusNotFound)
		default:
			p.answer(w, r)
		}
	})
}

// answer writes the page.
func (p *livePage) answer(w http.ResponseWriter, r *http.Request) {
	text := &bytes.Buffer{}
	_ = page.Write(text, p.current(r.Context())) // Writing to memory does not fail.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text.Bytes()) // The client is gone.
}

// serve answers requests until the context ends, which also ends those that wait for the cluster.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving the page: %w", err)
	case <-ctx.Done():
		return server.Close()
	}
}
