package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/clusterpolicy/gpu-operator/internal/kube/boundedserver"
)

const (
	// writeTimeout limits an answer, the request to the API server included.
	writeTimeout = 30 * time.Second
	// idleTimeout is longer than the usual scrape interval, so that Prometheus keeps its connection.
	idleTimeout = 3 * time.Minute
	// maxScrapes limits concurrent scrapes, for a collector that does not read its answers.
	maxScrapes = 8
)

// Serve serves the metrics at /metrics, and /healthz, on all addresses at this port until ctx ends; then it returns
// nil immediately, without waiting for requests. With port 0 the kernel chooses one. It fails if the port is in use.
func Serve(ctx context.Context, port int, metrics prometheus.Collector, log *slog.Logger) error {
	bounds := boundedserver.DefaultBounds()
	bounds.Write, bounds.Idle, bounds.KeepAll = writeTimeout, idleTimeout, true
	server, listener, err := bounds.Serve(ctx, net.JoinHostPort("", strconv.Itoa(port)), handler(metrics), nil)
	if err != nil {
		return fmt.Errorf("the metrics cannot be served on port %d; set a free one by --port or METRICS_PORT: %w", port, err)
	}
	log.Info("serving the metrics", "address", listener.Addr().String())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the metrics are no longer served on port %d: %w", port, err)
	}
	return nil
}

// handler serves these metrics and none about the program itself.
func handler(metrics prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	// Healthy means that the program answers, independent of the node: a restart repairs no GPU.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}
