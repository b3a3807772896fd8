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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	// outageTime is how long the API server is away, and the labels of discovery are.
	outageTime = time.Minute
	// firstBackoff is what a kubelet waits before it starts a container for the second time in a row; it doubles up to
	// mostBackoff. The first start is at once.
	firstBackoff, mostBackoff = 10 * time.Second, 5 * time.Minute
)

// restart measures a restart of the operator at rest.
func restart(ctx context.Context, b *bed) (outcome, error) {
	before, err := b.work(ctx)
	if err != nil {
		return outcome{}, err
	}
	calls, err := b.during(func() error {
		if err := b.operator.stop(); err != nil {
			return err
		}
		if err := b.startOperator(ctx); err != nil {
			return err
		}
		return b.settle(ctx)
	})
	if err != nil {
		return outcome{}, err
	}
	out, err := b.afterStart(ctx, restarted, "a restart of the operator", calls, before)
	if err != nil {
		return outcome{}, err
	}
	usage, anonymous, err := b.operator.usage()
	out.Figures = append(out.Figures,
		plain(other, "CPU of the operator for a restart", usage.CPU.Seconds(), seconds),
		plain(other, "peak memory of the operator after a restart (RSS)", inMegabytes(usage.PeakRSS), megabytes),
		plain(other, "of that, heap and stacks after a restart (anonymous, peak)", inMegabytes(anonymous), megabytes))
	return out, err
}

// afterStart are the figures of an operator that has started on a cluster that is ready.
func (b *bed) afterStart(ctx context.Context, name name, what string, calls cluster.Calls, before work) (outcome, error) {
	alone, err := b.undisturbed(ctx, what, before)
	return outcome{
		Figures: append([]figure{
			atMost(name, "API writes: "+what, float64(len(calls.Writes())), 0, count),
			atMost(other, "from the start of the process until its caches are filled: "+what, b.operator.filled.Seconds(), cachesSeconds, seconds),
		}, alone...),
		Tallies: []tally{tallyOf(what, calls)},
	}, err
}

// outage measures a minute without an API server. The operator gives up its lease when it cannot renew it, and ends;
// it is started again as a kubelet does.
func outage(ctx context.Context, b *bed) (outcome, error) {
	before, err := b.work(ctx)
	if err != nil {
		return outcome{}, err
	}
	starts := 0
	var back, again time.Time
	calls, err := b.during(func() (err error) {
		b.cluster.KillAPIServer()
		var server sync.WaitGroup
		var failed error
		server.Go(func() {
			failed = errors.Join(pause(ctx, outageTime), b.cluster.StartAPIServer(ctx))
			back = time.Now()
		})
		starts, err = b.superviseOver(ctx, server.Wait)
		again = time.Now()
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		return b.readyAndSettled(ctx, b.size)
	})
	if err != nil {
		return outcome{}, err
	}
	const what = "60 s without the API server"
	out, err := b.afterStart(ctx, other, what, calls, before)
	out.Figures = append(out.Figures,
		plain(other, "starts of the operator by its kubelet: "+what, float64(starts), count),
		plain(other, "from the API server's return until the operator's caches are filled, the kubelet's back-off included", max(0, again.Sub(back).Seconds()), seconds))
	return out, err
}

// superviseOver starts the operator again when it ends, as a kubelet does, until the end of something and until the
// operator runs then. It returns how often it was started.
func (b *bed) superviseOver(ctx context.Context, end func()) (starts int, err error) {
	over := make(chan struct{})
	go func() {
		end()
		close(over)
	}()
	select {
	case <-over:
		return 0, nil
	case <-b.operator.process.Done():
	}
	b.operator.cancel()
	for backoff := firstBackoff; ; backoff = min(2*backoff, mostBackoff) {
		starts++
		if err = b.startOperator(ctx); err == nil {
			<-over
			return starts, nil
		}
		if ctx.Err() != nil {
			<-over
			return starts, fmt.Errorf("start the operator again: %w", err)
		}
		if err := pause(ctx, backoff); err != nil {
			<-over
			return starts, err
		}
	}
}

// flap measures that the labels of discovery leave all nodes for a minute.
func flap(ctx context.Context, b *bed) (outcome, error) {
	before, err := b.work(ctx)
	if err != nil {
		return outcome{}, err
	}
	list := &corev1.NodeList{}
	if err := b.client.List(ctx, list); err != nil {
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
		return inParallel(ctx, parallel, names, func(ctx context.Context, name string) error { return b.labelNode(ctx, name, values[name]) })
	}
	calls, err := b.during(func() error {
		if err := relabel(away); err != nil {
			return err
		}
		if err := pause(ctx, outageTime); err != nil {
			return err
		}
		if err := relabel(back); err != nil {
			return err
		}
		return b.readyAndSettled(ctx, b.size)
	})
	if err != nil {
		return outcome{}, err
	}
	const what = "discovery labels leave all nodes for 60 s"
	alone, err := b.undisturbed(ctx, what, before)
	return outcome{Figures: alone, Tallies: []tally{tallyOf(what, calls)}}, err
}
