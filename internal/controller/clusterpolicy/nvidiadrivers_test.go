package clusterpolicy

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
)

// The objects have a status by the decisions of the pass once all nodes are assessed by them, and not before.
func TestStatusOfNVIDIADriversAfterAPass(t *testing.T) {
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	used := &fleet.Basis{Decisions: plan.Decide(catalogue, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)},
	})})}
	unused := &fleet.Basis{Decisions: plan.Decide(catalogue, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})})}
	for name, test := range map[string]struct {
		basis      *fleet.Basis
		unassessed int
		want       v1alpha1.DriverState
	}{
		"without a basis":        {},
		"before the assessments": {basis: used, unassessed: 1},
		"after them":             {basis: used, want: v1alpha1.StateReady},
		"of a policy without":    {basis: unused, want: v1alpha1.StateDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 1}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithStatusSubresource(object).Build()
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			s := &scope{
				Reconciler: &Reconciler{Options: Options{
					DriverStatus: statuswriter.NewDriverWriter(c, clock, statuswriter.DefaultTiming()), Clock: clock,
				}},
				basis: test.basis, drivers: []v1alpha1.NVIDIADriver{*object},
			}
			s.reportDrivers(t.Context(), status.Input{Unassessed: test.unassessed})
			g.Expect(s.err).NotTo(HaveOccurred())
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			g.Expect(object.Status.State).To(Equal(test.want))
		})
	}
}

// nvidiaDriver returns an NVIDIADriver object for all nodes.
func nvidiaDriver(name string) *v1alpha1.NVIDIADriver {
	object := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
	object.Spec.Default = true
	return object
}

// driverCRD returns the CRD of NVIDIADriver, without a field of the spec unless that is empty.
func driverCRD(without string) *unstructured.Unstructured {
	found := &unstructured.Unstructured{}
	must(yaml.Unmarshal(crd.NVIDIADriver, &found.Object))
	versions, _, err := unstructured.NestedSlice(found.Object, "spec", "versions")
	must(err)
	newest, isMap := versions[0].(map[string]any)
	if !isMap {
		panic("a version is not a map")
	}
	unstructured.RemoveNestedField(newest, "schema", "openAPIV3Schema", "properties", "spec", "properties", without)
	must(unstructured.SetNestedSlice(found.Object, versions, "spec", "versions"))
	return found
}

// The objects declare the drivers of a policy that uses them, if the CRD has all of their fields. They have a status in
// any case.
func TestPassesWithNVIDIADrivers(t *testing.T) {
	uses := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}}
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	for name, test := range map[string]struct {
		spec    v1.ClusterPolicySpec
		crd     client.Object
		fails   string
		unread  string
		drivers int
		missing float64
		state   v1alpha1.DriverState
	}{
		"unused": {crd: driverCRD(""), state: v1alpha1.StateDisabled},
		"used":   {spec: uses, crd: driverCRD(""), drivers: 1, state: v1alpha1.StateReady},
		"an older CRD": {
			spec: uses, crd: driverCRD("image"), missing: 1, unread: "does not have spec.image", state: v1alpha1.StateReady,
		},
		"no CRD": {spec: uses, unread: "the cluster has no CRD nvidiadrivers.nvidia.com: install it"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{policyOf(test.spec, 1), home, nvidiaDriver("default")}
			if test.crd != nil {
				objects = append(objects, test.crd)
			}
			u := newUnit(t, objects...)
			u.hydrate(gpuNode("a"))
			for range 3 {
				_, err := u.pass()
				u.Expect(err).NotTo(HaveOccurred())
				u.assess("", gpuNode("a"))
			}
			in := u.Fleet.Basis().Decisions.Input
			u.Expect(in.NVIDIADrivers).To(HaveLen(test.drivers))
			if test.unread == "" {
				u.Expect(in.NVIDIADriversUnread).To(BeEmpty())
			} else {
				u.Expect(in.NVIDIADriversUnread).To(ContainSubstring(test.unread))
			}
			u.Expect(u.metrics()).To(HaveKeyWithValue("definition_missing_fields", test.missing))
			object := nvidiaDriver("default")
			u.Expect(u.get(object)).To(Succeed())
			u.Expect(object.Status.State).To(Equal(test.state))
			if test.state != "" {
				u.Expect(object.Status.Namespace).To(Equal(namespace))
			}
		})
	}
	for _, fails := range []struct{ op, text string }{
		{"watch NVIDIADriver", "watching NVIDIADrivers"}, {"live get CustomResourceDefinition", "nvidiadrivers.nvidia.com"},
	} {
		u := newUnit(t, policyOf(uses, 1), home, nvidiaDriver("default"), driverCRD(""))
		u.hydrate(gpuNode("a"))
		u.onCall(func(_ context.Context, c call) error {
			if c.op == fails.op && c.name != crd.Name {
				return errInjected
			}
			return nil
		})
		_, err := u.pass()
		u.Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring(fails.text))))
		u.Expect(u.Fleet.Basis()).To(BeNil(), "nothing is decided")
	}
}

// Without a policy, the objects have a status that says so. Those that cannot be decoded are counted and have an Event.
func TestNVIDIADriversWithoutAPolicy(t *testing.T) {
	broken := nvidiaDriver("broken")
	broken.Annotations = map[string]string{undecodableMark: "cannot be decoded: spec.a is 5"}
	deleted := nvidiaDriver("deleted")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"a/b"}, new(metav1.Unix(1, 0))
	u := newUnit(t, driverCRD(""), nvidiaDriver("default"), broken, deleted)
	u.hydrate(gpuNode("a"))
	u.failOnce("patch status NVIDIADriver", 1)
	_, err := u.pass()
	u.Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring("writing status of NVIDIADriver broken"))))
	u.takeCalls()
	u.Expect(u.pass()).To(BeZero())
	u.Expect(u.events()).To(ConsistOf("Warning Undecodable: the spec cannot be decoded: spec.a is 5"))
	u.Expect(u.metrics()).To(HaveKeyWithValue("undecodable_objects NVIDIADriver", 1.0))
	for name, state := range map[string]v1alpha1.DriverState{
		"default": v1alpha1.StateDisabled, "broken": v1alpha1.StateNotReady, "deleted": "",
	} {
		object := nvidiaDriver(name)
		u.Expect(u.get(object)).To(Succeed())
		u.Expect(object.Status.State).To(Equal(state), name)
	}
	for op, fails := range map[string]string{
		"cached list DaemonSet": "listing DaemonSets", "watch NVIDIADriver": "watching",
	} {
		u := newUnit(t, driverCRD(""))
		s := u.scope()
		u.failOnce(op, 1)
		s.disableDrivers(u.context())
		u.Expect(s.err).To(And(MatchError(errInjected), MatchError(ContainSubstring(fails))), op)
	}
}

// A status that has to wait is written in a later pass. While the policy cannot be decoded, it says that.
func TestWritesOfDriverStatuses(t *testing.T) {
	object := nvidiaDriver("default")
	u := newUnit(t, object)
	u.Expect(u.get(object)).To(Succeed())
	write := func(decisions *plan.Decisions, undecodable string) time.Duration {
		s := u.scope()
		s.drivers, s.undecodable = []v1alpha1.NVIDIADriver{*object}, undecodable
		s.basis = &fleet.Basis{Decisions: decisions}
		s.writeDrivers(u.context())
		u.Expect(s.err).NotTo(HaveOccurred())
		return s.requeueDelay
	}
	const held = "no change is applied, as ClusterPolicy policy cannot be decoded"
	u.Expect(write(nil, "cannot be decoded")).To(BeZero())
	u.Expect(write(nil, "")).To(BeNumerically(">", 0), "the cache does not show the write")
	u.Expect(u.get(object)).To(Succeed())
	u.Expect(object.Status.Conditions).To(ContainElement(HaveField("Message", held)))
}
