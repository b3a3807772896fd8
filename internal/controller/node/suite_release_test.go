package node_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// expectReleased expects that nothing of the operator is left on the node, and everything of other writers.
func (f *fixture) expectReleased(ctx context.Context) {
	GinkgoHelper()
	node := f.node(ctx)
	for key := range node.Labels {
		Expect(key).NotTo(HavePrefix("nvidia.com/"))
	}
	for key := range node.Annotations {
		Expect(key).NotTo(HavePrefix("nvidia.com/"))
	}
	Expect(node.Labels).To(HaveKeyWithValue(labels.DiscoveryPCIPresent, labels.True))
	Expect(node.Status.Conditions).To(ConsistOf(HaveField("Type", corev1.NodeReady)))
	Expect(node.Spec.Taints).To(ConsistOf(team))
	Expect(f.entry()).
		To(And(HaveField("Latest", BeZero()), HaveField("Report", BeZero()), HaveField("WriteError", BeEmpty())))
}

var _ = Describe("A node whose policy is deleted", func() {
	It("is released: labels, annotations, condition and taints", func(ctx SpecContext) {
		f := newFailedForGood(ctx)
		f.update(ctx, func(node *corev1.Node) { node.Annotations[labels.DiscoveryMissingSince] = "2026-01-01T00:00:00Z" })
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, patchLabels, patchCondition, patchTaints}))
		f.expectReleased(ctx)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
	})

	It("keeps everything while DaemonSets run without a policy", func(ctx SpecContext) {
		f := newFailedForGood(ctx)
		before := f.node(ctx)
		f.fleet.Publish(fleet.Basis{KeepNodes: true}, f.clock.Now())
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
		Expect(f.node(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		f.expectReleased(ctx)
	})

	It("is not written within the back-off after a failed write", func(ctx SpecContext) {
		f := newFailedForGood(ctx)
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		f.fail(patchLabels, errInternal)
		_, err := f.reconcileAfter(ctx, time.Second)
		Expect(err).To(MatchError(errInternal))
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, 400*time.Millisecond)).To(Equal(600 * time.Millisecond))
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
		Expect(f.entry().WriteError).To(ContainSubstring("etcd is full"))
		_, err = f.reconcileAfter(ctx, 600*time.Millisecond)
		Expect(err).To(MatchError(errInternal))
		Expect(f.reconcileAfter(ctx, time.Second)).To(Equal(time.Second), "it doubles")
		f.fail(patchLabels, nil)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		f.expectReleased(ctx)
	})

	It(
		"loses the labels of the operator's discovery, and no other label that the annotation lists",
		func(ctx SpecContext) {
			f := newFixture(ctx, func(node *corev1.Node) {
				node.Labels["example.com/rack"] = "7"
				node.Annotations = map[string]string{
					labels.DiscoveredLabels: strings.Join([]string{labels.DiscoveryOSID, "example.com/rack"}, ","),
				}
			})
			f.fleet.Publish(fleet.Basis{}, f.clock.Now())
			Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
			Expect(f.node(ctx).Labels).To(And(
				Not(HaveKey(labels.DiscoveryOSID)),
				HaveKeyWithValue("example.com/rack", "7"),
				HaveKey(labels.DiscoveryOSVersion),
			))
			Expect(f.node(ctx).Annotations).NotTo(HaveKey(labels.DiscoveredLabels))
		},
	)

	It("keeps an administrator's labels if the operator never managed it", func(ctx SpecContext) {
		f := newFixture(ctx, func(node *corev1.Node) { node.Labels[labels.GPUPresent] = labels.True })
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
	})
})

// newLost returns a fixture whose node has just lost the label of its GPU, and its allocatable GPUs.
func newLost(ctx context.Context) *fixture {
	GinkgoHelper()
	f := newReady(ctx)
	f.updateStatus(ctx, noGPUs)
	f.update(ctx, func(node *corev1.Node) { delete(node.Labels, labels.DiscoveryPCIPresent) })
	_, err := f.reconcileAfter(ctx, time.Second)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.node(ctx).Annotations).To(And(HaveKey(labels.DiscoveryLostSince), HaveKey(labels.DiscoveryMissingSince)))
	f.takeCalls()
	return f
}

// grace is the default of spec.nodeDiscovery.gracePeriod.
const grace = 10 * time.Minute

var _ = Describe("A node whose discovery labels are missing", func() {
	It("is released after the grace period", func(ctx SpecContext) {
		f := newLost(ctx)
		_, err := f.reconcileAfter(ctx, grace-time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).NotTo(ContainElement(listLive))
		Expect(f.node(ctx).Labels).To(HaveKey(labels.DeployPrefix + driver))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listLive, patchLabels, patchCondition}))
		Expect(f.node(ctx).Labels).To(And(
			HaveKeyWithValue(labels.GPUPresent, labels.False),
			Not(HaveKey(labels.Pool)),
			Not(HaveKey(labels.DeployPrefix+driver)),
		))
		Expect(f.reported(ctx)).To(BeEmpty())
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
	})

	It("is released also if its condition can only be removed at the third attempt", func(ctx SpecContext) {
		f := newLost(ctx)
		f.fail(patchCondition, errInternal)
		for _, elapsed := range []time.Duration{grace, time.Second} {
			_, err := f.reconcileAfter(ctx, elapsed)
			Expect(err).To(MatchError(errInternal))
			Expect(f.entry().WriteError).To(Equal(err.Error()))
		}
		f.fail(patchCondition, nil)
		Expect(f.reconcileAfter(ctx, time.Second)).To(Equal(time.Second), "the back-off doubles")
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.reported(ctx)).To(BeEmpty())
	})

	It("is kept while a user's pod uses its GPUs", func(ctx SpecContext) {
		f := newLost(ctx)
		user := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: f.name, Namespace: metav1.NamespaceDefault},
			Spec: corev1.PodSpec{
				NodeName: f.name,
				Containers: []corev1.Container{
					{Name: "main", Image: "example.com/training", Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("1")},
					}},
				},
			},
		}
		Expect(f.client.Create(ctx, user)).To(Succeed())
		_, err := f.reconcileAfter(ctx, grace)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(ContainElements(listLive, listPods))
		Expect(f.node(ctx).Labels).To(HaveKey(labels.DeployPrefix + driver))
		Expect(f.client.Delete(ctx, user, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(f.reconcileAfter(ctx, grace)).To(BeZero())
		Expect(f.node(ctx).Labels).To(HaveKeyWithValue(labels.GPUPresent, labels.False))
	})

	DescribeTable(
		"is kept while it is unknown whether pods use its GPUs",
		func(ctx SpecContext, what string, failure error) {
			f := newLost(ctx)
			f.fail(what, failure)
			wait, err := f.reconcileAfter(ctx, grace)
			Expect(err).NotTo(HaveOccurred())
			Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", grace)))
			Expect(f.takeCalls()).To(ContainElements(listLive, listPods))
			Expect(f.node(ctx).Labels).To(HaveKey(labels.DeployPrefix + driver))
			f.fail(what, nil)
			Expect(f.reconcileAfter(ctx, grace)).To(BeZero())
			Expect(f.node(ctx).Labels).To(HaveKeyWithValue(labels.GPUPresent, labels.False))
		},
		eachFailure(answers, listLive),
	)

	It("is kept if the API server does not answer before the deadline", func(ctx SpecContext) {
		f := newLost(ctx)
		f.reconciler.Timing.Deadline = 20 * time.Second
		f.beforeNext(listLive, func(ctx context.Context) error {
			deadline, limited := ctx.Deadline()
			Expect(limited).To(BeTrue())
			Expect(deadline).To(BeTemporally("~", time.Now().Add(20*time.Second), 10*time.Second))
			return context.DeadlineExceeded
		})
		_, err := f.reconcileAfter(ctx, grace)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Labels).To(HaveKey(labels.DeployPrefix + driver))
	})

	It("loses the annotations about that once the labels are back", func(ctx SpecContext) {
		f := newLost(ctx)
		f.update(ctx, func(node *corev1.Node) { node.Labels[labels.DiscoveryPCIPresent] = labels.True })
		_, err := f.reconcileAfter(ctx, grace)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.node(ctx).Annotations).NotTo(Or(HaveKey(labels.DiscoveryLostSince), HaveKey(labels.DiscoveryMissingSince)))
		Expect(f.node(ctx).Labels).To(HaveKey(labels.DeployPrefix + driver))
	})

	It("is never released if all of them are missing: discovery has failed", func(ctx SpecContext) {
		f := newReady(ctx)
		f.updateStatus(ctx, noGPUs)
		f.update(ctx, func(node *corev1.Node) {
			for key := range node.Labels {
				if strings.HasPrefix(key, labels.DiscoveryPrefix) {
					delete(node.Labels, key)
				}
			}
		})
		for range 2 {
			_, err := f.reconcileAfter(ctx, 7*24*time.Hour)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(f.takeCalls()).NotTo(ContainElement(listLive))
		Expect(f.node(ctx).Labels).To(HaveKey(labels.DeployPrefix + driver))
		Expect(assess.GPUReadyCondition(f.node(ctx)).Message).To(ContainSubstring("no discovery labels since"))
	})
})
