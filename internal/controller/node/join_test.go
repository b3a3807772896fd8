package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// joins are nodes that join, and what Prometheus reads of that.
type joins struct {
	*WithT
	reconciler *Reconciler
	registry   *prometheus.Registry
	basis      *fleet.Basis
}

func newJoins(t *testing.T) *joins {
	t.Helper()
	meter := metrics.New(clocktesting.NewFakePassiveClock(now))
	j := &joins{
		WithT: NewWithT(t), registry: prometheus.NewPedanticRegistry(),
		reconciler: New(Options{Fleet: fleet.New(), Meter: meter}),
		basis:      &fleet.Basis{Policy: &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour))}}},
	}
	j.Expect(j.registry.Register(meter)).To(Succeed())
	return j
}

// newcomer is a node that was created that long before now.
func newcomer(name string, ago time.Duration) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-ago))}}
}

// withCondition is the node with the condition GPUReady.
func withCondition(node *corev1.Node) *corev1.Node {
	node.Status.Conditions = []corev1.NodeCondition{{Type: labels.ConditionGPUReady, Status: corev1.ConditionFalse}}
	return node
}

// climb has the node be found at this stage, or ready where that is empty.
func (j *joins) climb(node *corev1.Node, after time.Duration, stage v1.Stage) {
	s := &scope{Reconciler: j.reconciler, node: node, basis: j.basis, before: j.reconciler.Fleet.Get(node.Name), now: now.Add(after)}
	entry := fleet.Entry{}
	if s.before != nil {
		entry = *s.before
	}
	s.entry = entry
	s.entry.Facts = nodeinfo.Facts{Name: node.Name, HasGPU: true}
	s.entry.Latest.At, s.entry.Latest.Stage, s.entry.Latest.State = s.now, stage, readiness.Progressing
	if stage == "" {
		s.entry.Latest.Stage, s.entry.Latest.State = v1.StageValidated, readiness.Ready
	}
	s.join()
	j.reconciler.Fleet.Set(&s.entry)
}

// counted are the sum of seconds and the number of nodes, by stage.
func (j *joins) counted() map[v1.Stage][2]float64 {
	families, err := j.registry.Gather()
	j.Expect(err).NotTo(HaveOccurred())
	found := map[v1.Stage][2]float64{}
	for _, family := range families {
		if family.GetName() != "gpu_operator_node_join_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			histogram := metric.GetHistogram()
			found[v1.Stage(metric.GetLabel()[0].GetValue())] = [2]float64{histogram.GetSampleSum(), float64(histogram.GetSampleCount())}
		}
	}
	return found
}

func TestJoining(t *testing.T) {
	j := newJoins(t)
	const s = time.Second
	a := newcomer("a", 0)
	j.climb(a, 2*s, v1.StageDriver)
	withCondition(a)
	j.climb(a, 20*s, v1.StageDriver)
	j.climb(a, 20*s, v1.StageDevicePlugin)
	j.climb(a, 21*s, v1.StageDriver)
	j.climb(a, 40*s, "")
	j.climb(a, 41*s, v1.StageDriver)
	j.climb(a, time.Hour, "")
	j.climb(withCondition(newcomer("restarted", 0)), time.Hour, "")
	j.climb(newcomer("gone", 0), 10*s, v1.StageDiscovered)
	j.reconciler.Fleet.Delete("gone")
	j.climb(withCondition(newcomer("gone", 0)), time.Hour, "")
	j.Expect(j.counted()).To(Equal(map[v1.Stage][2]float64{
		"Discovered": {2, 1}, "Driver": {20, 1}, "Toolkit": {20, 1}, "DevicePlugin": {40, 1}, "Allocatable": {40, 1}, "Validated": {40, 1},
	}))
	j.Expect(j.reconciler.Fleet.Get("a").Writes).To(BeZero())
}

// The time counts since the node and the policy are both there; one that was there for longer joins now.
func TestSinceWhenANodeJoins(t *testing.T) {
	tests := map[string]struct {
		node, policy time.Duration
		want         float64
	}{
		"a node joins":   {node: time.Minute, policy: time.Hour, want: 90},
		"a policy comes": {node: time.Hour, policy: 2 * time.Minute, want: 150},
		"it takes ten minutes to discover its GPUs":  {node: 9*time.Minute + 30*time.Second, policy: time.Hour, want: 600},
		"it takes longer: the node has got GPUs now": {node: time.Hour, policy: 2 * time.Hour, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := newJoins(t)
			j.basis.Policy.CreationTimestamp = metav1.NewTime(now.Add(-test.policy))
			j.climb(newcomer("a", test.node), 30*time.Second, v1.StageDriver)
			j.Expect(j.counted()).To(Equal(map[v1.Stage][2]float64{"Discovered": {test.want, 1}}))
		})
	}
}
