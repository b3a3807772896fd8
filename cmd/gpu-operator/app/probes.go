package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterpolicy/gpu-operator/internal/kube/boundedserver"
)

// serve adds a server of the manager that any client in the cluster reaches; with TLS unless config is nil.
func serve(
	ctx context.Context, mgr manager.Manager, name, address string, handler http.Handler, config *tls.Config,
) error {
	server, listener, err := boundedserver.DefaultBounds().Serve(ctx, address, handler, config)
	if err != nil {
		return fmt.Errorf("serving %s: %w", name, err)
	}
	return mgr.Add(&manager.Server{
		Name: name, Server: server, Listener: listener, ShutdownTimeout: new(5 * time.Second),
	})
}

// addProbes adds the server of the probes; that of controller-runtime has no bound on connections. They are served
// before the caches are filled, on every replica.
func addProbes(ctx context.Context, mgr manager.Manager, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	return serve(ctx, mgr, "health probes", address, probes(cachesSynced(mgr)), nil)
}

// probes serves /healthz, and /readyz by the check.
func probes(ready healthz.Checker) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping}, "/readyz": {"caches": ready},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

// cachesSynced fails until the caches of the manager are synced.
func cachesSynced(mgr manager.Manager) func(*http.Request) error {
	return func(req *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(req.Context()) {
			return errors.New("the caches are not synced yet")
		}
		return nil
	}
}
