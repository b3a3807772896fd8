package cluster

import (
	"context"
	"os"
	"testing"
	"time"
)

func startCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	if _, err := EnsureBinaries(t.Context(), opts.Version, os.Stderr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	c, err := Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Kubernetes %s was up in %s", c.Version, time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestStart(t *testing.T) {
	startCluster(t, Options{})
}
