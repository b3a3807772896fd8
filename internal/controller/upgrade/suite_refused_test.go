package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// refusal is the answer of an admission policy.
func refusal(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x", errors.New(why))
}

// invalid is the answer of an admission policy with another code.
func invalid(why string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", field.ErrorList{field.Invalid(nil, "x", why)})
}

// isDone runs passes until the node is upgraded, for as long as the limit by the fixture's clock. It returns all that
// was reported meanwhile.
func (f *fixture) isDone(ctx context.Context, node string, limit time.Duration) (done bool, reports string) {
	GinkgoHelper()
	end := f.clock.Now().Add(limit)
	var all strings.Builder
	for f.clock.Now().Before(end) {
		f.play(ctx)
		_, err := f.pass(ctx, f.manager, 20*time.Second)
		Expect(err).NotTo(HaveOccurred())
		all.WriteString(f.reported() + "\n")
		if f.node(ctx, node).Labels[labels.UpgradeState] == "upgrade-done" {
			return true, all.String()
		}
	}
	return false, all.String()
}

var _ = Describe("A write for one node that the API server refuses for good", func() {
	onPod := func(verb, name, why string) func(string, client.Object, []byte) error {
		return func(gotVerb string, object client.Object, _ []byte) error {
			if gotVerb == verb && object.GetName() == name {
				return refusal(why)
			}
			return nil
		}
	}
	cordonOfA := func(verb string, object client.Object, content []byte) error {
		if verb == "patch" && object.GetName() == "a" && strings.Contains(string(content), `"unschedulable":true`) {
			return refusal("no cordon in office hours")
		}
		return nil
	}
	// Its first patch is the one with which it waits for a slot.
	laterPatchesOfA := func() func(string, client.Object, []byte) error {
		patches := 0
		return func(verb string, object client.Object, _ []byte) error {
			if verb != "patch" || object.GetName() != "a" {
				return nil
			}
			if patches++; patches == 1 {
				return nil
			}
			return refusal("annotations are too long")
		}
	}
	relabelled := func(verb string, object client.Object, _ []byte) error {
		if verb == "create" && object.GetName() == upgrade.PullPodName("a") {
			object.GetLabels()[labels.ManagedBy] = "platform"
		}
		return nil
	}
	DescribeTable("does not keep the other node from its upgrade, and is named", func(
		ctx SpecContext, limit time.Duration, refuse func(string, client.Object, []byte) error, why string,
	) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		f.target, f.refuse = "new", refuse
		done, reports := f.isDone(ctx, "b", limit)
		Expect(done).To(BeTrue(), reports)
		Expect(reports).To(ContainSubstring(why))
		Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeFalse())

		f.refuse = func(string, client.Object, []byte) error { return nil }
		done, reports = f.isDone(ctx, "a", time.Hour)
		Expect(done).To(BeTrue(), reports)
	},
		Entry("the pod that pulls its images, by a quota", 10*time.Minute,
			onPod("create", upgrade.PullPodName("a"), "exceeded quota: pods"), "exceeded quota: pods"),
		Entry("its cordon, by an admission policy", 10*time.Minute, cordonOfA, "no cordon in office hours"),
		Entry("the labels of the pod that pulls its images, which a webhook replaces", 10*time.Minute,
			relabelled, "its labels were changed"),
		Entry("whatever is written to it, as the limit of its annotations is reached", 20*time.Minute,
			laterPatchesOfA(), "annotations are too long"),
		Entry("the deletion of its driver pod, by an admission policy", 45*time.Minute,
			onPod("delete", driver+"-a", "drivers are not deleted"), "drivers are not deleted"),
	)

	It("is repeated for the next pods in a later pass, as each answer may take its time", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a")
		for _, name := range []string{"one", "two", "three"} {
			f.addUser(ctx, name, "a", 1)
		}
		tried := 0
		f.target, f.refuse = "new", func(verb string, _ client.Object, _ []byte) error {
			if verb != "evict" {
				return nil
			}
			tried++
			return apierrors.NewTimeoutError("the webhook does not answer", 1)
		}
		for range 20 {
			f.play(ctx)
			tried = 0
			_, err := f.pass(ctx, f.manager, 10*time.Second)
			Expect(err).NotTo(HaveOccurred())
			Expect(tried).To(BeNumerically("<=", 1))
		}
		Expect(f.reported()).To(ContainSubstring("the webhook does not answer"))
	})

	It("such as a pod with the name of the one that pulls images, which the cache does not have", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		Expect(f.client.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: cluster.OperatorNamespace, Name: upgrade.PullPodName("a"),
				Labels: map[string]string{labels.ManagedBy: "platform", labels.DriverPull: labels.True},
			},
			Spec: podSpec("a", nil),
		})).To(Succeed())
		f.target = "new"
		done, reports := f.isDone(ctx, "b", 10*time.Minute)
		Expect(done).To(BeTrue(), reports)
		Expect(reports).To(ContainSubstring("exists and is not the operator's: delete it"))
	})

	It("such as a pod of a user with the name of the one that pulls images", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		users := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: upgrade.PullPodName("a")},
			Spec:       podSpec("b", nil),
		}
		Expect(f.client.Create(ctx, users)).To(Succeed())
		f.manager = f.newManager()
		f.target = "new"
		done, reports := f.isDone(ctx, "b", 10*time.Minute)
		Expect(done).To(BeTrue(), reports)
		Expect(reports).To(ContainSubstring("exists and is not the operator's: delete it"))
	})
})

var _ = Describe("Writes of the slots that the API server refuses for good", func() {
	It("keep no node cordoned that has begun, and are named by those that wait", func(ctx SpecContext) {
		spec := automatic()
		spec.Driver.UpgradePolicy.MaxParallelUpgrades = new(int32(2))
		spec.Driver.UpgradePolicy.MaxUnavailable = new(intstr.FromInt32(2))
		f := newFakeFixture(ctx, spec, "a", "b", "c")
		f.addUser(ctx, "train", "b", 8)
		f.target = "new"
		for f.cordoned(ctx) < 2 {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, 20*time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		f.refuse = func(_ string, object client.Object, _ []byte) error {
			if object.GetName() == labels.UpgradeSlots {
				return refusal("ConfigMaps are frozen")
			}
			return nil
		}
		for _, node := range []string{"a", "b"} {
			done, reports := f.isDone(ctx, node, time.Hour)
			Expect(done).To(BeTrue(), reports)
		}
		Expect(f.cordoned(ctx)).To(BeZero())
		f.play(ctx)
		_, err := f.pass(ctx, f.manager, 20*time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.reported()).To(Equal("c upgrade-required: ReconcileFailed writing ConfigMap gpu-operator-driver-upgrades: " +
			`x "x" is forbidden: ConfigMaps are frozen (held)`))
		f.refuse = func(string, client.Object, []byte) error { return nil }
		f.upgraded(ctx)
	})
})

var _ = Describe("Calls for the slots that are refused with another text each time", func() {
	DescribeTable("change no report", func(specContext SpecContext, read bool) {
		var logged []string
		ctx := log.IntoContext(specContext, funcr.New(func(_, args string) {
			if strings.Contains(args, "No node can get a slot") {
				logged = append(logged, args)
			}
		}, funcr.Options{}))
		f := newFakeFixture(ctx, automatic(), "a")
		calls, refuse := 0, refusal
		answer := func() error {
			calls++
			return refuse(fmt.Sprint("request ", calls, " is denied"))
		}
		f.refuse = func(_ string, object client.Object, _ []byte) error {
			if object.GetName() == labels.UpgradeSlots && !read {
				return answer()
			}
			return nil
		}
		pass := func() string {
			if read {
				f.failNext(readSlots, answer())
			}
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, 30*time.Second)
			Expect(err).NotTo(HaveOccurred())
			return f.reported()
		}
		f.target = "new"
		Eventually(pass).WithTimeout(time.Minute).Should(ContainSubstring("is denied"))
		report, before := f.reported(), calls
		for range 5 {
			Expect(pass()).To(Equal(report))
		}
		Expect(calls).To(Equal(before + 5))
		Expect(logged).To(HaveLen(1), "the answer is logged where it is reported")
		f.clock.SetTime(f.clock.Now().Add(10 * time.Minute))
		Expect(pass()).To(ContainSubstring(fmt.Sprint("request ", calls, " is denied")), "it may have another cause by now")
		Expect(logged).To(HaveLen(2))
		refuse = invalid
		Expect(pass()).To(ContainSubstring("is invalid"), "another kind of answer")
		Expect(logged).To(HaveLen(3))

		read, f.refuse = false, func(string, client.Object, []byte) error { return nil }
		f.upgraded(ctx)
		Expect(f.reconciler.RefusedSlots()).To(BeEmpty())
	},
		Entry("of writes", false),
		Entry("of reads", true),
	)
})

var _ = Describe("A ConfigMap with the slots that a finalizer keeps", func() {
	It("is emptied, and nothing is written then though a node waits", func(ctx SpecContext) {
		f := newFakeFixture(ctx, automatic(), "a", "b")
		f.update(ctx, "b", func(node *corev1.Node) { node.Labels[labels.UpgradeSkip] = labels.True })
		slots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots, Finalizers: []string{"example.com/backup"},
			Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
		}}
		Expect(f.client.Create(ctx, slots)).To(Succeed())
		f.target = "new"
		done, reports := f.isDone(ctx, "a", 10*time.Minute)
		Expect(done).To(BeTrue(), reports)
		for range 3 {
			f.play(ctx)
			_, err := f.pass(ctx, f.manager, time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		f.takeWrites()
		f.expectNoWrites(ctx)
		Expect(f.client.Get(ctx, client.ObjectKeyFromObject(slots), slots)).To(Succeed())
		Expect(slots.Data).To(BeEmpty())
		slots.Finalizers = nil
		Expect(f.client.Update(ctx, slots)).To(Succeed())
	})
})
