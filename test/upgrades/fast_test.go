package upgrades

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

const (
	// fastRounds is how often all nodes are upgraded, and fastSample how often in a sample.
	fastRounds, fastSample = 200, 3
	fastNodes              = 4
	// idleInState is how long a node may stay in a state after its pods have what the next state needs.
	// idleShared is that on a machine with other work, where TEST_FULL is not set.
	idleInState, idleShared = 3 * time.Second, 10 * time.Second
	// callsOfAStep is how many calls, one after the other, the operator makes at most between an event and the patch that
	// follows it. A machine that is slow makes each of them slow.
	callsOfAStep = 10
)

// TestFastPods: where pods are ready in the second in which they were created, no event may be missed that ends a
// state: nothing else happens afterwards. No node stays in a state for longer than its pods need and idleInState.
// Times are those that the cluster has: the record of each state, and the conditions of the pods. The rounds do not
// depend on each other, so -upgrades.rounds=40 five times is the full run in parts.
func TestFastPods(t *testing.T) {
	t.Parallel()
	rounds, idleMost := cmp.Or(*flagRounds, fastSample), idleShared
	if full() {
		rounds, idleMost = cmp.Or(*flagRounds, fastRounds), idleInState
	}
	e := newEnv(t, envOptions{nodes: fastNodes, scale: 0.01, policy: func(u *v1.DriverUpgradePolicySpec) {
		budget(0, "100%")(u)
		u.PullImages = pointer(false)
	}})
	e.edit(func(s *v1.ClusterPolicySpec) {
		s.DCGMExporter.Enabled, s.GFD.Enabled, s.MIGManager.Enabled = pointer(true), pointer(true), pointer(true)
	})
	e.awaitReady(fastNodes)
	e.atRest()
	probe := newProbe(t, e)
	versions := []string{after, before}
	begin := time.Now()
	for round := range rounds {
		since, version := e.watch.now(), versions[round%len(versions)]
		e.install(version)
		e.awaitUpgraded(version, nodeNames(fastNodes)...)
		for i := range fastNodes {
			for _, stay := range e.watch.stays(nodeName(i), since) {
				allowed := idleMost + callsOfAStep*probe.slowest(stay.ready, stay.left)
				e.Expect(stay.left.Sub(stay.ready)).To(BeNumerically("<=", allowed), "round %d: %s", round, stay)
			}
		}
	}
	e.t.Logf("%d rounds of %d nodes, %s each", rounds, fastNodes,
		(time.Since(begin) / time.Duration(rounds)).Round(10*time.Millisecond))
}

// stay is how long a node was in a state.
type stay struct {
	node, state string
	// ready is since when its pods have had what the next state needs, and left when it was entered.
	ready, left time.Time
}

func (s stay) String() string {
	return fmt.Sprintf("%s left %s %s after its pods were ready", s.node, s.state,
		s.left.Sub(s.ready).Round(time.Millisecond))
}

// stays returns the states of its upgrade that the node has left since a version.
func (w *watcher) stays(name string, since int64) []stay {
	w.lock.Lock()
	defer w.lock.Unlock()
	var all []stay
	var entered nodeVersion
	var enteredAt time.Time
	for _, node := range w.nodes {
		if node.name != name || node.version <= since || node.state == entered.state {
			continue
		}
		at := node.stateSince()
		if entered.state != "" && entered.state != stateDone {
			ready := w.readySinceLocked(name, needed[entered.state], since, node.version)
			if ready.Before(enteredAt) {
				ready = enteredAt
			}
			all = append(all, stay{name, entered.state, ready, at})
		}
		entered, enteredAt = node, at
	}
	return all
}

// readySinceLocked is when the last pod of the app got ready on the node between two versions; zero if none did.
func (w *watcher) readySinceLocked(node, app string, since, until int64) time.Time {
	var last time.Time
	for _, pod := range w.pods {
		between := pod.version > since && pod.version <= until
		if pod.node == node && pod.app == app && pod.ready && between && pod.readySince.After(last) {
			last = pod.readySince
		}
	}
	return last
}

// needed is the pod that has to get ready before a state can be left.
var needed = map[string]string{stateRestart: driverApp, stateValidation: validatorApp}

// stateSince is when the state was entered, by the record.
func (n nodeVersion) stateSince() time.Time {
	var record struct {
		Since time.Time `json:"since"`
	}
	if json.Unmarshal([]byte(n.annotations[recordKey]), &record) != nil {
		return time.Time{}
	}
	return record.Since
}

// probe measures how long calls to the API server take.
type probe struct {
	lock  sync.Mutex
	calls []probeCall
}

type probeCall struct{ begin, end time.Time }

func newProbe(t *testing.T, e *env) *probe {
	t.Helper()
	p := &probe{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			begin := time.Now()
			_ = e.quiet.List(ctx, &v1.ClusterPolicyList{})
			p.add(probeCall{begin, time.Now()})
			<-tick.C
		}
	})
	return p
}

func (p *probe) add(call probeCall) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.calls = append(p.calls, call)
}

// slowest is the longest call that was made in a period.
func (p *probe) slowest(from, to time.Time) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	var longest time.Duration
	first, _ := slices.BinarySearchFunc(p.calls, from, func(c probeCall, at time.Time) int { return c.end.Compare(at) })
	for _, call := range p.calls[first:] {
		if call.begin.After(to) {
			break
		}
		longest = max(longest, call.end.Sub(call.begin))
	}
	return longest
}
