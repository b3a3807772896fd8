package metrics

import (
	"slices"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// discoveryTime is the longest time between a node's joining and its being found to have GPUs that counts for
// it. A node that was there for longer is one that got its GPUs, or its policy, late: it joins now.
const discoveryTime = 10 * time.Minute

// joining is a node on its way for the first time.
type joining struct {
	began time.Time
	// reached is the number of stages that are counted already.
	reached int
}

// Climb notes where a node is: at this stage, which is not reached, or ready. isNew tells that nobody has told of
// the node before, and since when it and the policy have both been there. A node that joined before this operator
// started is not counted.
func (m *Meter) Climb(node string, isNew bool, since time.Time, stage v1.Stage, ready bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	now := m.clock.Now()
	known := m.joining[node]
	if known == nil && isNew {
		if now.Sub(since) > discoveryTime {
			since = now
		}
		known = &joining{began: since}
		m.joining[node] = known
	}
	if known == nil {
		return
	}
	reached := slices.Index(stages, stage)
	if ready {
		reached = len(stages)
		delete(m.joining, node)
	}
	for ; known.reached < reached; known.reached++ {
		m.joins.WithLabelValues(string(stages[known.reached])).Observe(now.Sub(known.began).Seconds())
	}
}

// Forget drops a node that is gone.
func (m *Meter) Forget(node string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.joining, node)
}
