package observe_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// informerOf returns the informer that the index makes for objects like this one.
func informerOf(index *observe.PodIndex, example runtime.Object) toolscache.SharedIndexInformer {
	return index.NewInformer(&toolscache.ListWatch{}, example, 0, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	})
}

func TestPodIndexHandsOutTheCachedPods(t *testing.T) {
	g := NewWithT(t)
	index := &observe.PodIndex{}
	c := index.Client(fake.NewClientBuilder().WithScheme(newScheme(t)).Build())
	g.Expect(observe.HasPodIndex(c)).To(BeTrue())
	_, err := observe.PodsOnNode(t.Context(), c, "gpu-operator", "a")
	g.Expect(err).To(MatchError("listing pods of node a: pods are not watched yet"))
	informerOf(index, &corev1.Node{})
	_, err = observe.PodsOnNode(t.Context(), c, "gpu-operator", "a")
	g.Expect(err).To(HaveOccurred(), "an informer of other objects has no pods")

	pods := informerOf(index, &corev1.Pod{})
	pod := func(name, node string, podLabels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: name, Labels: podLabels}}
		p.Spec.NodeName = node
		return p
	}
	driver := pod("driver", "a", map[string]string{labels.Operand: "driver"})
	pull := pod("pull", "a", map[string]string{labels.DriverPull: labels.True})
	unplaced := pod("unplaced", "", map[string]string{labels.Operand: "driver"})
	unplaced.Spec.Affinity = affinityTo("b")
	for _, p := range []*corev1.Pod{driver, pull, unplaced, pod("other", "c", nil)} {
		g.Expect(pods.GetIndexer().Add(p)).To(Succeed())
	}
	onA, err := observe.PodsOnNode(t.Context(), c, "gpu-operator", "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(onA.Operands).To(HaveLen(1))
	g.Expect(onA.Operands["driver"]).To(BeIdenticalTo(driver), "it is not copied")
	g.Expect(onA.Pull).To(BeIdenticalTo(pull))
	onB, err := observe.PodsOnNode(t.Context(), c, "gpu-operator", "b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(onB.Operands["driver"]).To(BeIdenticalTo(unplaced))
	g.Expect(onB.Pull).To(BeNil())

	stack, _, err := observe.StackOnNode(t.Context(), c, "gpu-operator", "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stack).To(HaveExactElements(HaveField("Name", "driver"), HaveField("Name", "pull")))

	g.Expect(pods.GetIndexer().Delete(driver)).To(Succeed())
	onA, err = observe.PodsOnNode(t.Context(), c, "gpu-operator", "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(onA.Operands).To(BeEmpty())
}

// What HasUnlabelledPod reports of the index is what it reports of a list.
func TestHasUnlabelledPod(t *testing.T) {
	driver := map[string]string{labels.Operand: "driver"}
	for name, test := range map[string]struct {
		podLabels  map[string]string
		controller *bool
		asked      []types.UID
		want       bool
	}{
		"a pod of the DaemonSet":             {nil, new(true), []types.UID{"other", "ds"}, true},
		"a pod of another DaemonSet":         {nil, new(true), []types.UID{"other"}, false},
		"a labelled pod":                     {driver, new(true), []types.UID{"ds"}, false},
		"a pod whose owner is no controller": {nil, nil, []types.UID{"ds"}, false},
		"no DaemonSet":                       {nil, new(true), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "gpu-operator", Name: "driver", Labels: test.podLabels, OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "driver", UID: "ds", Controller: test.controller},
				},
			}}
			listed := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(pod).Build()
			g.Expect(observe.HasUnlabelledPod(t.Context(), listed, "gpu-operator", test.asked)).To(Equal(test.want))
			index := &observe.PodIndex{}
			indexed := index.Client(fake.NewClientBuilder().WithScheme(newScheme(t)).Build())
			_, err := observe.HasUnlabelledPod(t.Context(), indexed, "gpu-operator", test.asked)
			g.Expect(err).To(MatchError("listing pods: pods are not watched yet"))
			g.Expect(informerOf(index, &corev1.Pod{}).GetIndexer().Add(pod)).To(Succeed())
			g.Expect(observe.HasUnlabelledPod(t.Context(), indexed, "gpu-operator", test.asked)).To(Equal(test.want))
		})
	}
}

func TestOtherClientsHaveNoPodIndex(t *testing.T) {
	NewWithT(t).Expect(observe.HasPodIndex(fake.NewClientBuilder().Build())).To(BeFalse())
}
