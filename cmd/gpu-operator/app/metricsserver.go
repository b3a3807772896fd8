package app

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/clusterpolicy/gpu-operator/internal/metricsauth"
)

// serverBounds limit what clients that are not authorized yet can hold of a server.
type serverBounds struct {
	// header, read and write bound one request: its header with the TLS handshake, all of it, and with its answer. idle
	// is how long a connection waits for the next one.
	header, read, write, idle time.Duration
	// connections is how many are open at a time; beyond that, see limitedListener.
	connections int
	// headerBytes bounds a header.
	headerBytes int
}

// metricsBounds suffice for some clients that scrape, each within ten seconds. Those that scrape at least every 20 s
// keep their connections. An answer has more time than a review of a token (10 s).
func metricsBounds() serverBounds {
	return serverBounds{
		header: 5 * time.Second, read: 10 * time.Second, write: 15 * time.Second, idle: 20 * time.Second,
		connections: 64, headerBytes: 16 << 10,
	}
}

// serve returns an HTTP server for the handler, and its listener; with TLS unless config is nil. A connection ends
// after each answer that keeping is no part of.
func (b serverBounds) serve(
	address string, handler http.Handler, config *tls.Config,
) (*http.Server, net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	listener = &limitedListener{Listener: listener, max: b.connections}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	return &http.Server{
		Handler: closing(handler), ConnContext: withConn, MaxHeaderBytes: b.headerBytes,
		ReadHeaderTimeout: b.header, ReadTimeout: b.read, WriteTimeout: b.write, IdleTimeout: b.idle,
	}, listener, nil
}

// addServer adds the server of the metrics to the manager; that of controller-runtime has no bounds. It serves on every
// replica, whether or not it leads.
func (o *metricsOptions) addServer(mgr manager.Manager) error {
	if o.address == "0" {
		return nil
	}
	handler := keeping(promhttp.HandlerFor(
		ctrlmetrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	var config *tls.Config
	if o.secure {
		filter, err := metricsauth.Filter(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		if handler, err = filter(ctrl.Log.WithName("metrics"), handler); err != nil {
			return err
		}
		if config, err = o.tlsConfig(mgr); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	server, listener, err := metricsBounds().serve(o.address, mux, config)
	if err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return mgr.Add(&manager.Server{
		Name: "metrics", Server: server, Listener: listener, ShutdownTimeout: new(5 * time.Second),
	})
}

// tlsConfig returns the configuration with the certificate of the flags, which the manager reloads, or with a
// self-signed one. A scrape needs no HTTP/2 streams; without them an unauthenticated client has fewer ways to keep the
// server busy.
func (o *metricsOptions) tlsConfig(mgr manager.Manager) (*tls.Config, error) {
	config := &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	if o.certDir != "" {
		watcher, err := certwatcher.New(filepath.Join(o.certDir, "tls.crt"), filepath.Join(o.certDir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("reading the certificate of --%s: %w", flagMetricsCertDir, err)
		}
		config.GetCertificate = watcher.GetCertificate
		return config, mgr.Add(watcher)
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
	if err != nil {
		return nil, fmt.Errorf("generating the certificate for metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the generated certificate for metrics: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
