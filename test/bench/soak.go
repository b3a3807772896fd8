package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	// soakTenths are the parts of the phase, with the same events in each.
	soakTenths = 10
	// The events of each tenth: events of pods whose successors become ready, nodes that join and leave, and upgrades of
	// the driver on all nodes.
	soakPodEvents, soakNodes, soakUpgrades = 2000, 200, 5
	// soakBatch is how many nodes join and leave at the same time.
	soakBatch = 100
	// soakPace scales the durations of the simulated pods.
	soakPace = 0.1
	// soakGrowth limits heap and RSS after the last tenth, relative to those after the second one: the first one still
	// fills caches.
	soakGrowth = 1.05
)

// soak measures whether the operator's memory grows with what has passed: events of pods, nodes that join and leave,
// and driver upgrades, in ten equal parts. After each of them the fleet is as it was at the beginning.
func soak(ctx context.Context, m *measurement) (out outcome, err error) {
	quick := *m
	quick.pace = soakPace
	err = quick.onControlPlane(ctx, func(ctx context.Context, e *env) error {
		s := &soaked{
			env: e, out: m.progress, events: scaled(soakPodEvents, m.soak), nodes: scaled(soakNodes, m.soak),
			upgrades: scaled(soakUpgrades, m.soak),
		}
		out, err = s.run(ctx)
		return err
	})
	return out, err
}

// scaled returns a share of a number, at least 1; all of it if the share is 0.
func scaled(number int, share float64) int {
	if share == 0 {
		return number
	}
	return max(1, int(math.Round(float64(number)*share)))
}

// soaked is a fleet in the phase soak.
type soaked struct {
	*env
	// out gets a line for each tenth.
	out io.Writer
	// events, nodes and upgrades of each tenth.
	events, nodes, upgrades int
	// watched counts the events of pods.
	watched *podEvents
	// version is the number of the last upgrade.
	version int
}

// restState is the operator's state at rest after a tenth.
type restState struct {
	kept cluster.Kept
	// rss is its resident memory in bytes.
	rss int64
	// calls were made in the tenth.
	calls cluster.Calls
}

func (s *soaked) run(ctx context.Context) (outcome, error) {
	if err := s.install(ctx); err != nil {
		return outcome{}, err
	}
	rests := make([]restState, 0, soakTenths)
	for i := range soakTenths {
		begin := time.Now()
		after, err := s.tenth(ctx)
		if err != nil {
			return outcome{}, fmt.Errorf("tenth %d: %w", i+1, err)
		}
		fmt.Fprintf(s.out, "  tenth %d, in %.0f s: %s\n", i+1, time.Since(begin).Seconds(), after)
		rests = append(rests, after)
	}
	return s.outcome(rests), nil
}

// install makes the fleet ready, with upgrades of all nodes at the same time.
func (s *soaked) install(ctx context.Context) error {
	if _, err := s.sim.AddNodes(ctx, s.size); err != nil {
		return err
	}
	if err := s.startOperator(ctx); err != nil {
		return err
	}
	var err error
	if s.watched, err = watchPodEvents(ctx, s.cluster.SimulatorConfig); err != nil {
		return err
	}
	wanted, err := s.wanted()
	if err != nil {
		return err
	}
	upgrades := wanted.Spec.Driver.UpgradePolicy
	upgrades.AutoUpgrade, upgrades.MaxParallelUpgrades = new(true), new(int32(0))
	upgrades.MaxUnavailable = new(intstr.FromString("100%"))
	if err := s.create(ctx, wanted); err != nil {
		return err
	}
	return s.readyAndSettled(ctx, s.size)
}

// tenth makes the events of a tenth, waits until the fleet is at rest and measures the operator.
func (s *soaked) tenth(ctx context.Context) (after restState, err error) {
	if after.calls, err = s.during(func() error {
		if err := s.churnPods(ctx); err != nil {
			return err
		}
		for left := s.nodes; left > 0; left -= soakBatch {
			if err := s.joinAndLeave(ctx, min(left, soakBatch)); err != nil {
				return err
			}
		}
		for range s.upgrades {
			if err := s.upgrade(ctx); err != nil {
				return err
			}
		}
		return s.readyAndSettled(ctx, s.size)
	}); err != nil {
		return after, err
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if after.kept, err = cluster.KeptBy(limited, s.operator.metrics); err != nil {
		return after, err
	}
	usage, err := s.operator.process.Usage()
	after.rss = usage.RSS
	return after, err
}

func (r restState) String() string {
	return fmt.Sprintf("heap %.1f MB, RSS %.1f MB, %d goroutines, %d writes", float64(r.kept.Live)/(1<<20),
		float64(r.rss)/(1<<20), r.kept.Goroutines, len(r.calls.Writes()))
}

// outcome compares the last tenth with the second one, and lists all of them.
func (s *soaked) outcome(rests []restState) outcome {
	second, last := rests[1], rests[len(rests)-1]
	ratio := func(last, second int64) float64 { return float64(last) / float64(second) }
	all := fmt.Sprintf("after %d pod events, %d joins and leaves, %d driver upgrades", s.events*soakTenths,
		s.nodes*soakTenths, s.upgrades*soakTenths)
	out := outcome{Figures: []figure{
		atMost("live heap "+all+", against a fifth of them", ratio(last.kept.Live, second.kept.Live), soakGrowth,
			times),
		atMost("RSS, the same", ratio(last.rss, second.rss), soakGrowth, times),
		atMost("goroutines more, the same", float64(last.kept.Goroutines-second.kept.Goroutines), 0, count),
	}}
	for i, r := range rests {
		out.Figures = append(out.Figures, figure{What: fmt.Sprintf("tenth %d of these events", i+1), Measured: r.String()})
		out.Tallies = append(out.Tallies, tallyOf(fmt.Sprintf("tenth %d of the soak", i+1), r.calls))
	}
	return out
}

// upgrade installs another version of the driver on all nodes.
func (s *soaked) upgrade(ctx context.Context) error {
	s.version++
	version := fmt.Sprintf("590.%d.01", s.version)
	wanted, err := s.wanted()
	if err != nil {
		return err
	}
	change := map[string]any{"spec": map[string]any{"driver": map[string]any{"version": version}}}
	if err := s.patch(ctx, wanted, change); err != nil {
		return err
	}
	return s.await(ctx, "all nodes have driver "+version, listPeriod,
		func(ctx context.Context) (bool, string, error) {
			done, err := s.upgraded(ctx, version)
			return done == s.size, fmt.Sprintf("%d of %d", done, s.size), err
		})
}
