package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// contestant is an operator that is measured.
type contestant struct {
	// policy is the path of a file with its policy, and account the ServiceAccount by which its requests are counted.
	policy, account string
	start           func(context.Context) error
}

// measureOperator measures from the creation of the policy.
func (e *env) measureOperator(ctx context.Context, c contestant, after bool) (sample, error) {
	wanted, w, err := e.watchPolicy(ctx, c.policy)
	if err != nil {
		return sample{}, err
	}
	mark, err := e.cluster.Mark()
	if err != nil {
		return sample{}, err
	}
	if err := c.start(ctx); err != nil {
		return sample{}, err
	}
	if err := e.awaitRest(ctx); err != nil {
		return sample{}, err
	}
	begin := time.Now()
	if err := e.create(ctx, wanted); err != nil {
		return sample{}, err
	}
	s, err := e.awaitWatched(ctx, w, begin)
	if err != nil {
		return sample{}, err
	}
	usage, anonymous, err := e.operator.usage()
	if err != nil {
		return sample{}, err
	}
	s.operator = &operatorSample{cpu: usage.CPU, rss: usage.PeakRSS, anonymous: anonymous, watched: after}
	if err := e.steady(ctx, w); err != nil {
		return sample{}, err
	}
	return s, e.afterReady(ctx, s, c, w, mark, begin)
}

// watchPolicy reads a policy and starts to watch it, and the pods that it asks for.
func (e *env) watchPolicy(ctx context.Context, file string) (*unstructured.Unstructured, *watcher, error) {
	objects, err := cluster.ReadObjects(filepath.FromSlash(file))
	if err != nil {
		return nil, nil, err
	}
	if len(objects) != 1 {
		return nil, nil, fmt.Errorf("read the policy: %s has %d objects, want 1", file, len(objects))
	}
	kind := objects[0].GroupVersionKind()
	mapping, err := e.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, nil, fmt.Errorf("find the resource of the policy: %w", err)
	}
	w := newWatcher(e.size, nil)
	w.policies = mapping.Resource
	return objects[0], w, w.start(ctx, e.cluster.SimulatorConfig)
}

// steady waits, and fails if something is no longer ready then.
func (e *env) steady(ctx context.Context, w *watcher) error {
	wanted := w.wantedPods()
	if err := pause(ctx, steadyFor); err != nil {
		return err
	}
	return w.stillReady(wanted)
}

// afterReady adds what is measured after everything is ready.
func (e *env) afterReady(
	ctx context.Context, s sample, c contestant, w *watcher, mark cluster.Mark, begin time.Time,
) error {
	if c.account == account {
		select {
		case <-w.conditions:
			s.operator.conditions = w.conditionsMoment().Sub(begin)
		case <-ctx.Done():
			return fmt.Errorf("wait for the condition of each node: %w; last seen: %s", context.Cause(ctx), w.state())
		case <-time.After(e.timeout):
			return fmt.Errorf("the condition of each node is not True: %s", w.state())
		}
	}
	ready := begin.Add(s.ready)
	if s.operator.watched {
		if err := pause(ctx, time.Until(ready.Add(watchedAfter))); err != nil {
			return err
		}
	}
	calls, err := e.callsOf(c.account, mark)
	s.operator.calls, s.operator.after = splitCalls(calls, ready)
	return err
}
