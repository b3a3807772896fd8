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
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// joinEnv has joining nodes, and the registry with their metrics.
type joinEnv struct {
	*WithT
	reconciler *Reconciler
	registry   *prometheus.Registry
	basis      *fleet.Basis
}

func newJoinEnv(t *testing.T) *joinEnv {
	t.Helper()
	meter := metrics.New(clocktesting.NewFakePassiveClock(now))
	j := &joinEnv{
		WithT: NewWithT(t), registry: prometheus.NewPedanticRegistry(),
		reconciler: New(Options{Fleet: fleet.New(), Meter: meter}),
		basis: &fleet.Basis{
			Policy: &v1.ClusterPolicy{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour))},
			},
		},
	}
	j.Expect(j.registry.Register(meter)).To(Succeed())
	return j
}

// joiningNode returns a node that was created that long before now.
func joiningNode(name string, ago time.Duration) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-ago))}}
}

// withCondition adds the condition GPUReady to the node.
func withCondition(node *corev1.Node) *corev1.Node {
	node.Status.Conditions = []corev1.NodeCondition{{Type: labels.ConditionGPUReady, Status: corev1.ConditionFalse}}
	return node
}

// assessAt assesses the node at this stage, or as ready if the stage is empty.
func (j *joinEnv) assessAt(node *corev1.Node, after time.Duration, stage v1.Stage) {
	s := &scope{
		Reconciler: j.reconciler,
		node:       node,
		basis:      j.basis,
		previous:   j.reconciler.Fleet.Get(node.Name),
		now:        now.Add(after),
	}
	entry := fleet.Entry{}
	if s.previous != nil {
		entry = *s.previous
	}
	s.entry = entry
	s.entry.Facts = nodeinfo.Facts{Name: node.Name, HasGPU: true}
	s.entry.Latest.At, s.entry.Latest.Stage, s.entry.Latest.State = s.now, stage, readiness.Progressing
	if stage == "" {
		s.entry.Latest.Stage, s.entry.Latest.State = v1.StageValidated, readiness.Ready
	}
	s.recordJoin()
	j.reconciler.Fleet.Set(&s.entry)
}

// joinSeconds returns the sum of seconds and the number of nodes, by stage.
func (j *joinEnv) joinSeconds() map[v1.Stage][2]float64 {
	families, err := j.registry.Gather()
	j.Expect(err).NotTo(HaveOccurred())
	found := map[v1.Stage][2]float64{}
	for _, family := range families {
		if family.GetName() != "gpu_operator_node_join_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			histogram := metric.GetHistogram()
			found[v1.Stage(metric.GetLabel()[0].GetValue())] = [2]float64{
				histogram.GetSampleSum(),
				float64(histogram.GetSampleCount()),
			}
		}
	}
	return found
}

func TestJoinSeconds(t *testing.T) {
	j := newJoinEnv(t)
	const s = time.Second
	a := joiningNode("a", 0)
	j.assessAt(a, 2*s, v1.StageDriver)
	withCondition(a)
	j.assessAt(a, 20*s, v1.StageDriver)
	j.assessAt(a, 20*s, v1.StageDevicePlugin)
	j.assessAt(a, 21*s, v1.StageDriver)
	j.assessAt(a, 40*s, "")
	j.assessAt(a, 41*s, v1.StageDriver)
	j.assessAt(a, time.Hour, "")
	j.assessAt(withCondition(joiningNode("restarted", 0)), time.Hour, "")
	j.assessAt(joiningNode("gone", 0), 10*s, v1.StageDiscovered)
	j.reconciler.Fleet.Delete("gone")
	j.assessAt(withCondition(joiningNode("gone", 0)), time.Hour, "")
	j.Expect(j.joinSeconds()).To(Equal(map[v1.Stage][2]float64{
		"Discovered": {2, 1}, "Driver": {20, 1}, "Toolkit": {20, 1},
		"DevicePlugin": {40, 1}, "Allocatable": {40, 1}, "Validated": {40, 1},
	}))
	j.Expect(j.reconciler.Fleet.Get("a").Writes).To(BeZero())
}

// The time counts from when both node and policy exist; a node that is older joins now.
func TestJoinTime(t *testing.T) {
	tests := map[string]struct {
		node, policy time.Duration
		want         float64
	}{
		"a node joins":        {node: time.Minute, policy: time.Hour, want: 90},
		"a policy is created": {node: time.Hour, policy: 2 * time.Minute, want: 150},
		"it takes ten minutes to discover its GPUs": {
			node:   9*time.Minute + 30*time.Second,
			policy: time.Hour,
			want:   600,
		},
		"it takes longer: the node has got GPUs now": {node: time.Hour, policy: 2 * time.Hour, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := newJoinEnv(t)
			j.basis.Policy.CreationTimestamp = metav1.NewTime(now.Add(-test.policy))
			j.assessAt(joiningNode("a", test.node), 30*time.Second, v1.StageDriver)
			j.Expect(j.joinSeconds()).To(Equal(map[v1.Stage][2]float64{"Discovered": {test.want, 1}}))
		})
	}
}
