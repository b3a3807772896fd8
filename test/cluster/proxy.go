package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Phase is a moment in the life of a write.
type Phase string

const (
	// Before is the moment when the write has reached the proxy but not the API server.
	Before Phase = "before"
	// After is the moment when the API server has answered but the client has not seen it.
	After Phase = "after"
)

// Write is a mutating request at one of its two moments.
type Write struct {
	// Ordinal counts the writes from 1, in the order in which they reached the proxy.
	Ordinal int64
	Phase   Phase
	Method  string
	Path    string
	// Code is the API server's answer; zero at Before.
	Code int
}

// Verdict is what a hook wants done with a write. The zero value lets it pass.
type Verdict struct {
	// Cut drops the connection: at Before the API server never sees the write, at After the client
	// never learns that it succeeded. A hook that kills the client sets it too, so that nothing
	// depends on how fast the proxy notices.
	Cut bool
	// Code answers with this HTTP status instead, such as 409 or 503.
	Code int
}

// WriteProxy stands in front of the API server and calls a hook at each mutating request, so that a
// test can crash the operator at write N, before or after it took effect. Leases and events pass
// unseen. It has the API server's certificate and passes the client's credentials on.
type WriteProxy struct {
	// URL is what a kubeconfig names as the server.
	URL string

	server *http.Server
	hook   func(Write) Verdict
	count  atomic.Int64
}

// NewWriteProxy starts a proxy in front of the cluster's API server. The hook is called from many
// goroutines at once.
func (c *Cluster) NewWriteProxy(hook func(Write) Verdict) (*WriteProxy, error) {
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse URL of the API server: %w", err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(c.Config))
	if err != nil {
		return nil, fmt.Errorf("make transport to the API server: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for proxy: %w", err)
	}
	p := &WriteProxy{URL: "https://" + listener.Addr().String(), hook: hook}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		// A watch event must reach the client at once.
		FlushInterval:  -1,
		ModifyResponse: p.after,
		ErrorHandler:   failed,
	}
	p.server = &http.Server{
		Handler: p.before(forward),
		// Without HTTP/2 a cut is the end of a connection, not of a stream among others.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	go func() {
		_ = p.server.ServeTLS(listener, filepath.Join(c.dir, servingCert), filepath.Join(c.dir, servingKey))
	}()
	return p, nil
}

// Close cuts all connections.
func (p *WriteProxy) Close() error { return p.server.Close() }

// Writes returns how many writes have reached the proxy.
func (p *WriteProxy) Writes() int64 { return p.count.Load() }

// ordinalKey is where the context of a request keeps a write's number, for its second moment.
type ordinalKey struct{}

func (p *WriteProxy) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isObservedWrite(r) {
			next.ServeHTTP(w, r)
			return
		}
		ordinal := p.count.Add(1)
		r = r.WithContext(context.WithValue(r.Context(), ordinalKey{}, ordinal))
		verdict := p.hook(Write{Ordinal: ordinal, Phase: Before, Method: r.Method, Path: r.URL.Path})
		switch {
		case verdict.Cut:
			panic(http.ErrAbortHandler)
		case verdict.Code != 0:
			http.Error(w, "refused by the test's proxy", verdict.Code)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (p *WriteProxy) after(resp *http.Response) error {
	req := resp.Request
	ordinal, observed := req.Context().Value(ordinalKey{}).(int64)
	if !observed {
		return nil
	}
	write := Write{Ordinal: ordinal, Phase: After, Method: req.Method, Path: req.URL.Path, Code: resp.StatusCode}
	verdict := p.hook(write)
	switch {
	case verdict.Cut:
		return http.ErrAbortHandler
	case verdict.Code != 0:
		return refusal(verdict.Code)
	default:
		return nil
	}
}

// refusal is the status that a hook chose in place of the API server's answer.
type refusal int

func (r refusal) Error() string { return fmt.Sprintf("answered with %d by the test's proxy", int(r)) }

// failed answers the client when there is no answer of the API server to pass on.
func failed(w http.ResponseWriter, _ *http.Request, err error) {
	var code refusal
	if errors.As(err, &code) {
		http.Error(w, err.Error(), int(code))
		return
	}
	// As if the API server itself were gone.
	panic(http.ErrAbortHandler)
}

func isObservedWrite(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	for _, segment := range strings.Split(r.URL.Path, "/") {
		switch segment {
		// Reviews are POST requests that store nothing.
		case "leases", "events", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews":
			return false
		}
	}
	return true
}
