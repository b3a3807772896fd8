package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/clusterpolicy/gpu-operator/internal/kube/boundedserver"
	"github.com/clusterpolicy/gpu-operator/internal/kube/metricsauth"
)

// addServer adds the server of the metrics to the manager; that of controller-runtime has no bounds. It serves on every
// replica, whether or not it leads.
func (o *metricsOptions) addServer(ctx context.Context, mgr manager.Manager) error {
	if o.address == "0" {
		return nil
	}
	handler := boundedserver.Keeping(promhttp.HandlerFor(
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
	return serve(ctx, mgr, "metrics", o.address, mux, config)
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
