package upgrade

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// memory is what one pass leaves to the next. All of it may be lost: that costs an early attempt or a rejected write.
type memory struct {
	mu *sync.Mutex
	// versions are the resource versions after the last writes to Nodes, until the cache shows them.
	versions freshness.Writes
	// failures are the nodes for which a call has failed.
	failures map[string]failure
	// rejected are the pods whose eviction the API server has rejected.
	rejected map[types.UID]rejection
	// busy are the nodes on which pods used the GPUs when that was last read, for a MIG layout, and when.
	busy map[string]time.Time
	// workloads are the pods of users as the last pass knew them, on the nodes that wait for them.
	workloads map[string]keptWorkload
	// replaced are the nodes with an annotation that was replaced, and the transition of the last Event about that.
	replaced map[string]string
	// refused is why the API server refuses a call for the slots; zero if it does not.
	refused slotsRefusal
	// blocked are the last Events about what blocks the evictions of nodes.
	blocked map[string]block
	// mayHaveSlots: the ConfigMap has slots that end with a pass, or has not been read yet.
	mayHaveSlots bool
	// waited is the number of pods that nodes wait for, and poll the delay before they are read again.
	waited int
	poll   time.Duration
}

// failure is what call for a node has failed, with which answer, and since when such calls fail.
type failure struct {
	times.Backoff
	what   string
	answer answer
	since  time.Time
}

// rejection is why a pod is not evicted, and when that is tried again.
type rejection struct {
	times.Backoff
	answer answer
	varies bool
}

// slotsRefusal is the call for the slots that is refused, the kind of the answer, and the answer that is reported.
type slotsRefusal struct {
	doing, reason string
	answer        answer
}

// block is the last cause that an Event names, and how many Events the round of the node has had.
type block struct {
	round   int64
	message string
	number  int
}

func newMemory() memory {
	return memory{
		mu: &sync.Mutex{}, mayHaveSlots: true,
		versions: freshness.Writes{}, failures: map[string]failure{}, rejected: map[types.UID]rejection{},
		busy: map[string]time.Time{}, replaced: map[string]string{}, workloads: map[string]keptWorkload{},
		blocked: map[string]block{},
	}
}

// noteWritten remembers the version of a Node after a write.
func (m *memory) noteWritten(node, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.versions[node] = version
}

// noteCall remembers whether a call for a node has succeeded, and returns the delay before the next attempt; 0 if it
// has. A read that succeeds says nothing of a write that fails.
func (m *memory) noteCall(node, what string, err error, now time.Time, t *Timing) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.failures[node]
	if err == nil {
		if what != readsPods || before.what == readsPods {
			delete(m.failures, node)
		}
		return 0
	}
	after := failure{Backoff: before.Next(now, t.FirstRetry, t.LastRetry), what: what, since: now}
	if before.lasts(now, t) {
		after.since = before.since
		if before.what == what {
			after.answer = before.answer
		}
	}
	after.answer = after.answer.next(what+": "+err.Error(), now, t.KeepAnswer)
	m.failures[node] = after
	return after.Wait
}

// lasts reports whether the call that has failed is still repeated.
func (f *failure) lasts(now time.Time, t *Timing) bool {
	return now.Before(f.Until.Add(2 * t.LastRetry))
}

// failing returns why calls for the node fail, and since when; empty if they do not.
func (m *memory) failing(node string, now time.Time, t *Timing) (message string, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.failures[node]; f.lasts(now, t) {
		return f.answer.text, f.since
	}
	return "", time.Time{}
}

// remaining returns how long no calls for a node may be made.
func (m *memory) remaining(node string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, m.failures[node].Until.Sub(now))
}

// noteReplaced remembers the transition of an Event about an annotation that is replaced, and reports whether it
// differs from that of the last such Event about the node.
func (m *memory) noteReplaced(node, transition string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.replaced[node]
	m.replaced[node] = transition
	return before != transition
}

// noteBlocked remembers what blocks the evictions of a node in a round, and reports whether an Event is to name it: the
// last one does not, and the round has not had as many as it may have.
func (m *memory) noteBlocked(node string, round int64, message string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.blocked[node]
	if last.round != round {
		last = block{round: round}
	}
	if last.message == message || last.number >= maxBlocked {
		return false
	}
	last.message = message
	last.number++
	m.blocked[node] = last
	return true
}

// noteBusy remembers that pods use the GPUs of a node.
func (m *memory) noteBusy(node string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy[node] = now
}

// expireBusy returns how long a node that was busy is taken for busy without another read, and forgets it after that.
func (m *memory) expireBusy(node string, now time.Time, t *Timing) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.busy[node].Add(t.RetryBusy).Sub(now); left > 0 {
		return left
	}
	delete(m.busy, node)
	return 0
}

// reject remembers that the API server has rejected the eviction of a pod. A text that does not vary is reported at
// once.
func (m *memory) reject(pod types.UID, refused refusal, now time.Time, t *Timing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, was := m.rejected[pod], answer{}
	if before.varies && refused.varies {
		was = before.answer
	}
	m.rejected[pod] = rejection{
		before.Next(now, t.FirstEviction, t.LastEviction), was.next(refused.text, now, t.KeepAnswer), refused.varies,
	}
}

// forgetWorkload makes the next pass read the pods of the node.
func (m *memory) forgetWorkload(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.workloads, node)
}

// forgetRejection forgets the rejections of a pod.
func (m *memory) forgetRejection(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rejected, pod)
}

// rejection returns why the eviction of a pod was rejected; empty if it was not.
func (m *memory) rejection(pod types.UID) rejection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rejected[pod]
}

// prune forgets all but these nodes and pods: others are at rest, or no node waits for them. Which annotations were
// replaced still counts on a node at rest that exists, as they may be written again.
func (m *memory) prune(nodes map[string]bool, pods map[types.UID]bool, exists func(node string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.versions, func(node, _ string) bool { return !nodes[node] })
	maps.DeleteFunc(m.busy, func(node string, _ time.Time) bool { return !nodes[node] })
	maps.DeleteFunc(m.blocked, func(node string, _ block) bool { return !nodes[node] })
	maps.DeleteFunc(m.workloads, func(node string, _ keptWorkload) bool { return !nodes[node] })
	maps.DeleteFunc(m.failures, func(node string, _ failure) bool { return !nodes[node] })
	maps.DeleteFunc(m.replaced, func(node, _ string) bool { return !exists(node) })
	maps.DeleteFunc(m.rejected, func(pod types.UID, _ rejection) bool { return !pods[pod] })
}

// slowPoll returns the delay before pods that nodes wait for are read again, and makes it grow while their number stays
// the same.
func (m *memory) slowPoll(waited int, t *Timing) time.Duration {
	if waited != m.waited {
		m.poll = 0
	}
	m.waited, m.poll = waited, min(max(2*m.poll, t.FirstPoll), t.LastPoll)
	return m.poll
}

// countPods returns the number of pods in the workload.
func countPods(w *upgrade.Workload) int { return len(w.Users) + len(w.Jobs) + len(w.Others) }
