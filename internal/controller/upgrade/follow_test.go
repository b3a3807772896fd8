package upgrade

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// follows is what causes the next pass after each action: the event of what it has changed, or a requeue. An action
// without either would leave its node waiting for an event of something else.
var follows = map[string]func(t *testing.T) bool{
	"ActionPatch": nodeFollows(func(n *corev1.Node) { n.Annotations[labels.UpgradeRecord] = "new" }),
	"ActionLayout": func(t *testing.T) bool {
		request := nodeFollows(func(n *corev1.Node) { n.Labels[labels.MIGConfig] = "new" })
		drain := nodeFollows(func(n *corev1.Node) { n.Annotations[labels.MIGDrain] = "new" })
		return request(t) && drain(t)
	},
	"ActionPull":    podFollows(labels.DriverPull, labels.True),
	"ActionEndPull": podFollows(labels.DriverPull, labels.True),
	"ActionEvict": func(*testing.T) bool {
		// The pods of users cause no events: they are read again while a node waits for them.
		timing, m := DefaultTiming(), newMemory()
		return m.slowPoll(1, &timing) > 0
	},
	"ActionDeleteDriver": podFollows(labels.Operand, "driver"),
	"ActionDeleteDependants": func(t *testing.T) bool {
		for _, name := range dependants {
			if !podFollows(labels.Operand, name)(t) {
				t.Errorf("no event of %s follows", name)
			}
		}
		return true
	},
}

// nodeFollows reports whether a change of a Node causes a pass.
func nodeFollows(change func(*corev1.Node)) func(*testing.T) bool {
	return func(*testing.T) bool {
		node := func() *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "a", Labels: map[string]string{}, Annotations: map[string]string{},
			}}
		}
		after := node()
		change(after)
		return cachefilter.UpgradeNodeChanges().Update(event.UpdateEvent{ObjectOld: node(), ObjectNew: after})
	}
}

// podFollows reports whether each step of the replacement of a pod causes a pass: that it is created, gets ready, is
// being deleted, and is gone.
func podFollows(key, value string) func(*testing.T) bool {
	return func(t *testing.T) bool {
		t.Helper()
		catalogue, err := operands.Catalogue()
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		passes := cachefilter.UpgradePodChanges(New(Options{Catalogue: catalogue}).concerns())
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{key: value}}, Spec: corev1.PodSpec{NodeName: "a"},
		}
		ready := pod.DeepCopy()
		ready.Status.Phase = corev1.PodRunning
		ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		ready.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Ready: true,
		}}
		ending := ready.DeepCopy()
		ending.DeletionTimestamp = new(metav1.Now())
		return passes.Create(event.CreateEvent{Object: pod}) &&
			passes.Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: ready}) &&
			passes.Update(event.UpdateEvent{ObjectOld: ready, ObjectNew: ending}) &&
			passes.Delete(event.DeleteEvent{Object: ending})
	}
}

// dependants are the operands that need the driver on their node.
var dependants = []string{
	"container-toolkit", "operator-validator", "device-plugin", "mps-control-daemon", "gpu-feature-discovery", "dcgm",
	"dcgm-exporter", "mig-manager",
}

// TestEachActionNamesWhatFollows: each action of a plan has a row, also one that is added later.
func TestEachActionNamesWhatFollows(t *testing.T) {
	actions := declaredActions(t)
	g := NewWithT(t)
	g.Expect(actions).To(HaveLen(len(follows)), "the actions in internal/upgrade/plan.go have other rows than this table")
	for _, name := range actions {
		t.Run(name, func(t *testing.T) {
			next, has := follows[name]
			NewWithT(t).Expect(has).To(BeTrue(), "say what follows the action: an event that causes a pass, or a requeue")
			NewWithT(t).Expect(next(t)).To(BeTrue(), "nothing causes a pass after the action")
		})
	}
}

// declaredActions are the names of the constants of type Action.
func declaredActions(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../upgrade/plan.go", nil, 0)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isValue := n.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		kind, named := spec.Type.(*ast.Ident)
		if !named || kind.Name != "Action" {
			return true
		}
		for _, name := range spec.Names {
			names = append(names, name.Name)
		}
		return true
	})
	return names
}
