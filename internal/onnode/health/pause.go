package health

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// Reasons why there are no sessions with NVML now.
const (
	pausedUnknown   = "labels-unknown"
	pausedByLabel   = "deploy-label"
	pausedByMIG     = "mig"
	pausedByUpgrade = "driver-upgrade"
	pausedByDriver  = "driver-not-ready"
)

// pauseOf returns why nobody but the owner of these labels may open the GPUs of the node; empty if one may.
func pauseOf(found map[string]string) string {
	for key, value := range found {
		if strings.HasPrefix(key, labels.DeployPrefix) && strings.HasPrefix(value, labels.DeployPaused) {
			return pausedByLabel
		}
	}
	switch found[labels.MIGConfigState] {
	case labels.MIGStatePending, labels.MIGStateRebooting:
		return pausedByMIG
	}
	switch found[labels.UpgradeState] {
	case "", labels.UpgradeStateRequired, labels.UpgradeStateDone:
		return ""
	}
	return pausedByUpgrade
}

// pause is whether there may be sessions.
type pause struct {
	mu      sync.Mutex
	reason  string
	changed chan struct{}
}

func newPause() *pause { return &pause{reason: pausedUnknown, changed: make(chan struct{})} }

// get returns the reason for the pause, empty for none, and a channel that is closed when it changes.
func (p *pause) get() (reason string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason, p.changed
}

func (p *pause) set(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != reason {
		p.reason = reason
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// during returns a context that ends when a pause begins.
func (p *pause) during(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancel(ctx)
	go func() {
		for {
			reason, changed := p.get()
			if reason != "" {
				cancel()
				return
			}
			select {
			case <-bounded.Done():
				return
			case <-changed:
			}
		}
	}()
	return bounded, cancel
}

// maxWatch is longer than any watch: by default an API server ends it after at most an hour. It is for connections that
// have died silently.
const maxWatch = 70 * time.Minute

// follow keeps the pause in line with the labels of the Node until ctx ends, and notices that its annotation was
// removed: by a watch of this one Node, as the kubelet has one. While the labels are not known, there is a pause.
func (a *Agent) follow(ctx context.Context) {
	for ctx.Err() == nil {
		started := time.Now()
		err := a.watchNode(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(started) > a.options.Interval {
			// The API server ends each watch at some time.
			continue
		}
		a.pause.set(pausedUnknown)
		a.options.Log.Warn("the Node cannot be watched; trying again", "error", err.Error())
		if !wait.Sleep(ctx, a.options.Interval) {
			return
		}
	}
}

// watchNode reads the Node, and then each change of it until the watch ends.
func (a *Agent) watchNode(ctx context.Context) error {
	node, err := a.options.API.Node(ctx, a.options.Node)
	if err != nil {
		return err
	}
	a.takeNode(node)
	bounded, cancel := context.WithTimeout(ctx, maxWatch)
	defer cancel()
	return a.options.API.AwaitNode(bounded, a.options.Node, node.Metadata.ResourceVersion, func(node nodeapi.Node) bool {
		a.takeNode(node)
		return false
	})
}

// takeNode takes the labels of the Node, and whether someone has removed the annotation: then it is written again.
func (a *Agent) takeNode(node nodeapi.Node) {
	a.pause.set(pauseOf(node.Metadata.Labels))
	_, there := node.Metadata.Annotations[labels.GPUHealth]
	a.mu.Lock()
	removed := a.seen && !there
	a.seen, a.removed = there, a.removed || removed
	a.mu.Unlock()
	if removed {
		a.wake()
	}
}
