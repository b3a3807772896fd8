package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

const (
	// DefaultResync is how often the Node is compared when nothing has changed.
	DefaultResync = 5 * time.Minute
	// DefaultKeepMissing is how long labels of GPU Feature Discovery outlive its file: longer than its
	// restart with a new driver takes.
	DefaultKeepMissing = 10 * time.Minute
	// settleTime is how long changes are debounced, as of the functions of one GPU.
	settleTime = 500 * time.Millisecond
	// firstBackoff is the pause after the first failure; it doubles up to the resync.
	firstBackoff = time.Second
	// attempts limits how often a write is retried after a conflict.
	attempts = 5
)

// Discovery labels one node.
type Discovery struct {
	// Node is the name of the node, and Client calls its API server.
	Node   string
	Client *nodeapi.Client
	Host   Host
	// Features is GPU Feature Discovery's file. Neither it nor its directory need exist.
	Features string
	Mode     Mode
	// Resync is how often the Node is compared when nothing has changed; up to a tenth of it is jitter.
	Resync time.Duration
	// KeepMissing is how long labels of GPU Feature Discovery outlive its file; 0 removes them with it.
	KeepMissing time.Duration
	// Log gets what is written, and each problem once.
	Log *slog.Logger

	// Tests shorten these.
	settle, backoff time.Duration
}

// Once labels the node and returns. What cannot be read is only logged; an error is one sentence about
// the Node.
func (d Discovery) Once(ctx context.Context) error {
	r := newRunner(d)
	findings, _ := r.lookAndLog()
	if err := r.write(ctx, findings); err != nil {
		return fmt.Errorf("node %s is not labelled: %w", d.Node, err)
	}
	return nil
}

// Run labels the node and keeps the labels current until ctx ends. It retries after every failure of the API
// server.
func (d Discovery) Run(ctx context.Context) {
	r := newRunner(d)
	devices, err := pci.Changes(ctx)
	if err != nil {
		d.Log.Warn("the kernel reports no device events, so an added or removed GPU is noticed at the next resync",
			"error", err)
	}
	files := wait.Changes(ctx, filepath.Dir(d.Features), d.Log)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-devices:
			wait.Sleep(ctx, r.settle)
		case <-files:
			wait.Sleep(ctx, r.settle)
		}
		timer.Reset(r.runRound(ctx))
	}
}

// runner is a discovery with its state, which only prevents repeated log lines and requests.
type runner struct {
	Discovery
	features features

	synced   Findings  // What the Node was last compared with.
	nextSync time.Time // When it is compared again, at the latest.
	failures int       // In a row.

	reason   string // Of the last failure.
	problems string
	withNFD  bool
	stale    string
}

func newRunner(d Discovery) *runner {
	if d.settle == 0 {
		d.settle = settleTime
	}
	if d.backoff == 0 {
		d.backoff = firstBackoff
	}
	return &runner{Discovery: d, features: features{path: d.Features, keep: d.KeepMissing, now: time.Now}}
}

// runRound reads the node, compares the Node if that is due or the findings have changed, and returns the time until
// the next round if nothing changes.
func (r *runner) runRound(ctx context.Context) time.Duration {
	findings, kept := r.lookAndLog()
	due := !time.Now().Before(r.nextSync)
	// While the API server fails, changes do not make requests more frequent.
	if due || r.failures == 0 && !findings.Same(r.synced) {
		r.account(ctx, findings, r.write(ctx, findings))
	}
	pause := time.Until(r.nextSync)
	if kept > 0 {
		pause = min(pause, kept)
	}
	return max(pause, 0)
}

// lookAndLog reads the node, and logs what cannot be read when that changes. It also returns how long labels without
// a file are still kept.
func (r *runner) lookAndLog() (Findings, time.Duration) {
	findings := r.Host.Findings()
	kept := r.features.add(&findings)
	problems := strings.Join(findings.Problems, "; ")
	if problems != r.problems {
		if problems == "" {
			r.Log.Info("all facts of the node can be read again")
		} else {
			r.Log.Warn("some facts of the node cannot be read; its other labels are kept current", "because", problems)
		}
		r.problems = problems
	}
	return findings, kept
}

// account records the result of a comparison, and schedules the next.
func (r *runner) account(ctx context.Context, findings Findings, err error) {
	if err == nil {
		if r.failures > 0 {
			r.Log.Info("the node is in sync again", "failures", r.failures)
		}
		r.synced, r.failures, r.reason = findings, 0, ""
		r.nextSync = time.Now().Add(r.Resync - rand.N(r.Resync/10+1))
		return
	}
	if ctx.Err() != nil {
		return
	}
	r.nextSync = time.Now().Add(times.Jittered(r.failures, r.backoff, r.Resync))
	r.failures++
	if reason := reasonOf(err); reason != r.reason {
		r.reason = reason
		r.Log.Warn("the node is not labelled yet; trying again", "node", r.Node, "because", err)
	}
}

// reasonOf returns the error without details that differ each time, such as the port of a connection.
func reasonOf(err error) string {
	var network *net.OpError
	if errors.As(err, &network) {
		return network.Op + ": " + network.Err.Error()
	}
	return err.Error()
}

// write compares the Node with the findings and writes the difference, if there is one.
func (r *runner) write(ctx context.Context, findings Findings) error {
	var err error
	for range attempts {
		var node nodeapi.Node
		if node, err = r.Client.Node(ctx, r.Node); err != nil {
			return err
		}
		c := newChanges(r.Mode, node.Metadata, findings)
		r.report(c)
		if c.empty() {
			return nil
		}
		if err = r.Client.PatchNode(ctx, r.Node, c.patch); err == nil {
			r.reportChanges(c)
			return nil
		}
		if !nodeapi.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("other clients keep writing the Node: %w", err)
}

// report logs when Node Feature Discovery begins or ends to label the node, and its stale labels.
func (r *runner) report(c changes) {
	if c.withNFD != r.withNFD {
		if c.withNFD {
			r.Log.Info("Node Feature Discovery labels this node, so the labels that it lists are left to it")
		} else {
			r.Log.Info("Node Feature Discovery no longer labels this node")
		}
		r.withNFD = c.withNFD
	}
	stale := strings.Join(c.stale, ", ")
	if stale != r.stale && stale != "" {
		r.Log.Warn("labels of Node Feature Discovery are stale; if it was removed, run its prune job or set "+
			"spec.nodeDiscovery.mode to builtin", "labels", stale)
	}
	r.stale = stale
}

func (r *runner) reportChanges(c changes) {
	var set, removed []string
	for _, key := range slices.Sorted(maps.Keys(c.patch.Labels)) {
		if value := c.patch.Labels[key]; value != nil {
			set = append(set, key+"="+*value)
		} else {
			removed = append(removed, key)
		}
	}
	r.Log.Info("the node is labelled", "set", strings.Join(set, ","), "removed", strings.Join(removed, ","))
}
