package allnodes_test

import (
	"cmp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

func TestIsDue(t *testing.T) {
	now, decisions := time.Unix(1000, 0), &plan.Decisions{}
	delays := allnodes.DefaultDelays()
	node := func(version uint64, managed bool) *fleet.Entry {
		return &fleet.Entry{Facts: nodeinfo.Facts{HasGPU: managed}, BasisVersion: version}
	}
	for name, test := range map[string]struct {
		basis    *fleet.Basis
		unknown  bool
		node     *fleet.Entry
		due      bool
		requeued time.Duration
	}{
		"no pass of the policy yet":    {},
		"nodes are unknown":            {basis: &fleet.Basis{Decisions: decisions}, unknown: true},
		"NVIDIA's operator is at work": {basis: &fleet.Basis{KeepNodes: true}},
		"no policy":                    {basis: &fleet.Basis{}, node: node(1, true), due: true},
		"the spec is known":            {basis: &fleet.Basis{Decisions: decisions, KeepNodes: true}, due: true},
		"all are assessed":             {basis: &fleet.Basis{Decisions: decisions, Since: now}, due: true},
		"one is not managed": {
			basis: &fleet.Basis{Decisions: decisions, Since: now}, node: node(1, false), due: true,
		},
		"one is assessed by another one": {
			basis: &fleet.Basis{Decisions: decisions, Since: now}, node: node(1, true), requeued: delays.Assessment,
		},
		"one has been for a while": {basis: &fleet.Basis{Decisions: decisions}, node: node(1, true), due: true},
		"one has been long enough": {
			basis: &fleet.Basis{Decisions: decisions, Since: now.Add(-delays.Assessment)}, node: node(1, true), due: true,
		},
		"no policy, just now": {basis: &fleet.Basis{Since: now}, node: node(1, true), due: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := fleet.New()
			published := of.Publish(fleet.Basis{KeepNodes: true}, now)
			pass := delays.Begin(of, now)
			g.Expect(pass).To(Equal(allnodes.Pass{Delays: &delays, Now: now, Basis: published}))
			pass.Basis = test.basis
			nodes := []*fleet.Entry{node(0, true), cmp.Or(test.node, node(0, true))}
			g.Expect(pass.IsDue(!test.unknown, nodes)).To(Equal(test.due))
			result, err := pass.Result(time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.requeued))
		})
	}
}

// The next pass is when the plan ends, but never at once, or before that if something else is due.
func TestResult(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct{ until, other, want time.Duration }{
		{-time.Second, 0, time.Millisecond}, {time.Second, 0, time.Second}, {time.Minute, time.Second, time.Second},
	} {
		pass := allnodes.Pass{Now: now}
		pass.RequeueAfter(test.other)
		pass.RequeueAfter(0)
		result, err := pass.Result(now.Add(test.until))
		if err != nil || result.RequeueAfter != test.want {
			t.Errorf("after %s, want %s", result.RequeueAfter, test.want)
		}
	}
}

// A node is left alone while it is not assessed by the current Basis, the cache does not show the last write to it, or
// a call for it has just failed. A write that the cache shows is forgotten.
func TestHold(t *testing.T) {
	delays := allnodes.DefaultDelays()
	decided := &fleet.Basis{Decisions: &plan.Decisions{}, Version: 2}
	for name, test := range map[string]struct {
		basis    *fleet.Basis
		entry    *fleet.Entry
		wrote    string
		backoff  time.Duration
		held     bool
		requeued time.Duration
		left     freshness.Writes
	}{
		"assessed": {basis: decided, entry: &fleet.Entry{BasisVersion: 2}},
		"not assessed": {
			basis: decided, entry: &fleet.Entry{BasisVersion: 1}, wrote: "5", held: true,
			left: freshness.Writes{"a": "5"},
		},
		"no policy":   {basis: &fleet.Basis{Version: 2}, entry: &fleet.Entry{BasisVersion: 1}},
		"not managed": {basis: decided},
		"not managed, stale": {
			basis: decided, wrote: "7", held: true, requeued: time.Second, left: freshness.Writes{"a": "7"},
		},
		"its write was read": {basis: decided, wrote: "5"},
		"in its back-off":    {basis: decided, backoff: 3 * time.Second, held: true, requeued: 3 * time.Second},
		"stale, in a back-off": {
			basis: decided, wrote: "7", backoff: 3 * time.Second, held: true, requeued: time.Second,
			left: freshness.Writes{"a": "7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, writes := NewWithT(t), freshness.Writes{}
			if test.wrote != "" {
				writes["a"] = test.wrote
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "6"}}
			pass := allnodes.Pass{Delays: &delays, Basis: test.basis}
			g.Expect(pass.Hold(node, test.entry, writes, test.backoff)).To(Equal(test.held))
			g.Expect(writes).To(HaveLen(len(test.left)))
			g.Expect(writes["a"]).To(Equal(test.left["a"]))
			result, err := pass.Result(time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.requeued))
		})
	}
}

// A burst of events is one pass, the later the more nodes are starting, up to a limit. Failures have a back-off.
func TestWhenAPassStarts(t *testing.T) {
	g, delays := NewWithT(t), allnodes.DefaultDelays()
	g.Expect(delays).To(Equal(allnodes.Delays{
		Debounce: 200 * time.Millisecond, DebouncePerNode: 2 * time.Millisecond, MaxDebounce: 3 * time.Second,
		Assessment: 10 * time.Second, RetryStale: time.Second, FirstRetry: time.Second, LastRetry: 30 * time.Second,
	}))
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "nodes"}}
	limiter := delays.Options().RateLimiter
	g.Expect(limiter.When(request)).To(Equal(time.Second))
	g.Expect(limiter.When(request)).To(Equal(2 * time.Second))
	for range 20 {
		limiter.When(request)
	}
	g.Expect(limiter.When(request)).To(Equal(30 * time.Second))
	for nodes, want := range map[int]time.Duration{
		0: 200 * time.Millisecond, 100: 400 * time.Millisecond, 2000: 3 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			g, of := NewWithT(t), fleet.New()
			for i := range nodes {
				entry := &fleet.Entry{Facts: nodeinfo.Facts{Name: strconv.Itoa(i), HasGPU: true}, BasisVersion: 1}
				entry.Latest.State = readiness.Progressing
				of.Set(entry)
			}
			g.Expect(of.Starting()).To(Equal(nodes))
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			delays.Debounced(of).Generic(t.Context(), event.GenericEvent{Object: &corev1.Node{}}, queue)
			time.Sleep(want - time.Millisecond)
			synctest.Wait()
			g.Expect(queue.Len()).To(BeZero())
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			g.Expect(queue.Len()).To(Equal(1))
			got, _ := queue.Get()
			g.Expect(got).To(Equal(request))
			queue.Done(got)
		})
	}
}
