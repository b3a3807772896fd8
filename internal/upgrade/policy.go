package upgrade

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

// Policy is the effective upgradePolicy of a group of nodes: that of spec.driver, or that of a node pool.
type Policy struct {
	// Auto: outdated drivers are upgraded without a request. Paused: no upgrade starts; running ones continue.
	Auto, Paused bool
	// MaxParallel is how many nodes are upgraded at a time; 0 means no limit.
	MaxParallel int
	// MaxUnavailable is how many nodes of the group may be unavailable; a percentage is rounded up.
	MaxUnavailable intstr.IntOrString
	// PullImages: the images of the new driver are pulled before the node is cordoned.
	PullImages bool
	// WaitsForJobs: waitForCompletion selects pods. JobsTimeout limits that wait; 0 means no limit.
	WaitsForJobs bool
	JobsTimeout  time.Duration
	// PodDeletionTimeout and DrainTimeout limit these states; 0 means no limit. Drains: drain is enabled.
	PodDeletionTimeout, DrainTimeout time.Duration
	Drains                           bool
	// PullTimeout, DriverTimeout and ValidationTimeout limit the pull of images, StatePodRestart and StateValidation.
	PullTimeout, DriverTimeout, ValidationTimeout time.Duration
	// RetryAfter is how long after its first failure a node is tried again. It doubles with each further failure for the
	// same target, up to MaxRetryAfter: each attempt cordons the node for a while.
	RetryAfter, MaxRetryAfter time.Duration
}

// drain is the drain of the node, in a step that began at since.
func (c *Cluster) drain(n *Node, since time.Time) drain.Drain {
	policy := c.Policies[n.Group]
	return drain.Drain{
		WaitsForJobs: policy.WaitsForJobs, Drains: policy.Drains,
		Timeouts: [...]time.Duration{policy.JobsTimeout, policy.PodDeletionTimeout, policy.DrainTimeout},
		Since:    since, Now: c.Now, KubeletReady: n.KubeletReady, NotReadySince: n.NotReadySince, Workload: n.Workload,
	}
}

// plausible returns when a round is tried again by a record: now if its time is further in the future than any retry
// is scheduled, whatever the clock of another manager was.
func (p *Policy) plausible(retryAt, now time.Time) time.Time {
	if p.MaxRetryAfter > 0 && retryAt.After(now.Add(2*p.MaxRetryAfter)) {
		return now
	}
	return retryAt
}

// manyFailures is where failures are not counted any further: their delay is the longest long before.
const manyFailures = 1000

// countFailure adds a failure in a record, and schedules the next attempt. Other clients can write any number there.
func (p *Policy) countFailure(failures *int, retryAt *time.Time, now time.Time) {
	*failures = min(max(*failures, 0), manyFailures) + 1
	if delay := p.retryAfter(*failures); delay > 0 {
		*retryAt = now.Add(delay)
	}
}

// retryAfter returns the delay after this many failures in a row; 0 means no retry.
func (p *Policy) retryAfter(failures int) time.Duration {
	delay := p.RetryAfter
	for range failures - 1 {
		if delay >= p.MaxRetryAfter {
			break
		}
		delay = min(2*delay, p.MaxRetryAfter)
	}
	return delay
}
