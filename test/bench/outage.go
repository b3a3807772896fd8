package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	// outageTime is how long the API server is down, or the discovery labels are missing.
	outageTime = time.Minute
	// firstBackoff is how long a kubelet waits before the second restart of a container in a row; it doubles up to
	// mostBackoff. The first restart is immediate.
	firstBackoff, mostBackoff = 10 * time.Second, 5 * time.Minute
)

// restart measures a restart of the operator while the cluster is at rest.
func restart(ctx context.Context, e *env) (outcome, error) {
	before, err := e.work(ctx)
	if err != nil {
		return outcome{}, err
	}
	calls, err := e.during(func() error {
		if err := e.operator.stop(); err != nil {
			return err
		}
		if err := e.startOperator(ctx); err != nil {
			return err
		}
		return e.settle(ctx)
	})
	if err != nil {
		return outcome{}, err
	}
	out, err := e.afterStart(ctx, "a restart of the operator", calls, before)
	if err != nil {
		return outcome{}, err
	}
	usage, anonymous, err := e.operator.usage()
	out.Figures = append(out.Figures,
		plain(other, "CPU of the operator for a restart", usage.CPU.Seconds(), seconds),
		atMost("peak memory of the operator after a restart (RSS)", inMegabytes(usage.PeakRSS), limitsOf(e.size).memory,
			megabytes),
		plain(other, "of that, heap and stacks after a restart (anonymous, peak)", inMegabytes(anonymous), megabytes))
	return out, err
}

// afterStart returns the figures of an operator that has started on a ready cluster.
func (e *env) afterStart(ctx context.Context, what string, calls cluster.Calls, before work) (outcome, error) {
	alone, err := e.undisturbed(ctx, what, before)
	return outcome{
		Figures: append([]figure{
			atMost("API writes: "+what, float64(len(calls.Writes())), 0, count),
			atMost("from the start of the process until its caches are synced: "+what, e.operator.filled.Seconds(),
				cachesSeconds, seconds),
		}, alone...),
		Tallies: []tally{tallyOf(what, calls)},
	}, err
}

// outage measures a minute without an API server. The operator exits when it cannot renew its lease, and is restarted
// as by a kubelet.
func outage(ctx context.Context, e *env) (outcome, error) {
	before, err := e.work(ctx)
	if err != nil {
		return outcome{}, err
	}
	starts := 0
	var back, again time.Time
	calls, err := e.during(func() (err error) {
		e.cluster.KillAPIServer()
		var server sync.WaitGroup
		var failed error
		server.Go(func() {
			failed = errors.Join(pause(ctx, outageTime), e.cluster.StartAPIServer(ctx))
			back = time.Now()
		})
		starts, err = e.superviseOver(ctx, server.Wait)
		again = time.Now()
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		return e.readyAndSettled(ctx, e.size)
	})
	if err != nil {
		return outcome{}, err
	}
	const what = "60 s without the API server"
	out, err := e.afterStart(ctx, what, calls, before)
	out.Figures = append(out.Figures,
		plain(other, "starts of the operator by its kubelet: "+what, float64(starts), count),
		plain(other, "from the API server's return until the operator's caches are synced, including the kubelet's back-off",
			max(0, again.Sub(back).Seconds()), seconds))
	return out, err
}

// superviseOver restarts the operator when it exits, as a kubelet does, until over is closed and the operator runs.
// It returns how often it was started.
func (e *env) superviseOver(ctx context.Context, end func()) (starts int, err error) {
	over := make(chan struct{})
	go func() {
		end()
		close(over)
	}()
	select {
	case <-over:
		return 0, nil
	case <-e.operator.process.Done():
	}
	e.operator.cancel()
	for backoff := firstBackoff; ; backoff = min(2*backoff, mostBackoff) {
		starts++
		if err = e.startOperator(ctx); err == nil {
			<-over
			return starts, nil
		}
		if ctx.Err() != nil {
			<-over
			return starts, fmt.Errorf("restart the operator: %w", err)
		}
		if err := pause(ctx, backoff); err != nil {
			<-over
			return starts, err
		}
	}
}

// flap measures a minute in which all nodes have no discovery labels.
func flap(ctx context.Context, e *env) (outcome, error) {
	before, err := e.work(ctx)
	if err != nil {
		return outcome{}, err
	}
	list := &corev1.NodeList{}
	if err := e.client.List(ctx, list); err != nil {
		return outcome{}, fmt.Errorf("list nodes: %w", err)
	}
	away, back := map[string]map[string]any{}, map[string]map[string]any{}
	for i := range list.Items {
		node := &list.Items[i]
		away[node.Name], back[node.Name] = map[string]any{}, map[string]any{}
		for key, value := range node.Labels {
			if strings.HasPrefix(key, labels.DiscoveryPrefix) {
				away[node.Name][key], back[node.Name][key] = nil, value
			}
		}
	}
	names := slices.Sorted(maps.Keys(away))
	relabel := func(values map[string]map[string]any) error {
		return inParallel(ctx, parallel, names,
			func(ctx context.Context, name string) error { return e.labelNode(ctx, name, values[name]) })
	}
	calls, err := e.during(func() error {
		if err := relabel(away); err != nil {
			return err
		}
		if err := pause(ctx, outageTime); err != nil {
			return err
		}
		if err := relabel(back); err != nil {
			return err
		}
		return e.readyAndSettled(ctx, e.size)
	})
	if err != nil {
		return outcome{}, err
	}
	const what = "discovery labels are missing on all nodes for 60 s"
	alone, err := e.undisturbed(ctx, what, before)
	return outcome{Figures: alone, Tallies: []tally{tallyOf(what, calls)}}, err
}
