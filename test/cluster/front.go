package cluster

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// Front is a server that clients use as the API server, such as a proxy in front of it: it has the API server's
// certificate. The handler's transport to the API server adds no credentials, so that those of the client apply.
type Front struct {
	// URL is the server for a kubeconfig, see ServiceAccountKubeconfig.
	URL string

	server *http.Server
}

// NewFront serves the handler that the function returns, given the URL of the API server and a transport to it.
func (c *Cluster) NewFront(handler func(target *url.URL, transport http.RoundTripper) http.Handler) (*Front, error) {
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
	f := &Front{URL: "https://" + listener.Addr().String(), server: &http.Server{
		Handler: handler(target, transport),
		// Without HTTP/2 a cut closes a connection instead of one of several streams.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(io.Discard, "", 0),
	}}
	go func() {
		_ = f.server.ServeTLS(listener, filepath.Join(c.dir, servingCert), filepath.Join(c.dir, servingKey))
	}()
	return f, nil
}

// Close closes all connections.
func (f *Front) Close() error { return f.server.Close() }
