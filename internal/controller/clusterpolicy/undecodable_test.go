package clusterpolicy

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
)

// undecodableMark is the annotation that the operator's transport gives to what it reads. The clients of the suite
// have no such transport, so that the API server has it here.
const undecodableMark = "nvidia.com/gpu-operator.undecodable"

// setMark sets or, if it is empty, removes the mark of a policy.
func setMark(ctx context.Context, name, cause string) {
	GinkgoHelper()
	policy := getPolicy(ctx, name)
	delete(policy.Annotations, undecodableMark)
	if cause != "" {
		policy.Annotations = map[string]string{undecodableMark: cause}
	}
	Expect(admin.Update(ctx, policy)).To(Succeed())
}

// controllers returns the UIDs of the policies that control the DaemonSets.
func controllers(ctx context.Context) map[types.UID]int {
	GinkgoHelper()
	found := map[types.UID]int{}
	for _, ds := range daemonSets(ctx) {
		found[metav1.GetControllerOf(ds).UID]++
	}
	return found
}

var _ = Describe("A policy that cannot be decoded", func() {
	It("stays ignored after its correction while a younger one that has been active exists", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "a-older", v1.ClusterPolicySpec{GFD: &v1.GFDSpec{Enabled: new(false)}})
		setMark(ctx, "a-older", "cannot be decoded: spec.a is 5")
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		active := env.policy(ctx)
		Expect(active.Finalizers).To(ConsistOf("nvidia.com/gpu-operator.removal"))
		Expect(message(getPolicy(ctx, "a-older"), v1.ConditionReady)).To(
			ContainSubstring("ClusterPolicy policy is active, and this one stays ignored also after its correction"))
		owned, decisions := controllers(ctx), env.fleet.Basis().Decisions
		Expect(owned).To(HaveLen(1))
		Expect(owned).To(HaveKey(active.UID))
		env.takeWrites()

		setMark(ctx, "a-older", "")
		for range 3 {
			env.pass(ctx, time.Minute)
		}
		Expect(env.takeWrites()).To(HaveEach(HaveSuffix("status ClusterPolicy a-older")))
		Expect(controllers(ctx)).To(Equal(owned))
		Expect(env.fleet.Basis().Policy.UID).To(Equal(active.UID), "nodes are labelled by the decisions about it")
		Expect(env.fleet.Basis().Decisions).To(BeIdenticalTo(decisions))
		corrected := getPolicy(ctx, "a-older")
		Expect(corrected.Status.State).To(Equal(v1.StateIgnored))
		Expect(corrected.Finalizers).To(BeEmpty())
		Expect(message(corrected, v1.ConditionReady)).To(Equal(
			"ClusterPolicy policy is active and takes precedence, so this one has no effect: delete one of them"))
	})
})

// The objects that have an Event are in memory up to a bound, as each one may be deleted.
func TestTheMemoryOfUndecodableObjectsIsBounded(t *testing.T) {
	g := NewWithT(t)
	server, clock := fake.NewClientBuilder().Build(), clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	recorder := events.NewRecorder(server, clock, func(string) {})
	r := New(Options{Status: statuswriter.New(server, clock, recorder, nil, statuswriter.DefaultTiming())})
	s := &scope{Reconciler: r}
	ctx := log.IntoContext(t.Context(), logr.Discard())
	for i := range 1100 {
		object := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("driver-", i), UID: types.UID(strconv.Itoa(i)), Generation: 1,
			Annotations: map[string]string{undecodableMark: "cannot be decoded: spec.a is 5"},
		}}
		g.Expect(s.noteUndecodable(ctx, v1alpha1.NVIDIADriverKind, object)).To(Equal(1))
		g.Expect(len(r.undecodableEvents)).To(And(BeNumerically(">", 0), BeNumerically("<=", 1024)), "of %d objects", i+1)
	}
}

// Each generation of an object that cannot be decoded has an Event, until the object is corrected.
func TestEventsOfUndecodableObjects(t *testing.T) {
	marked := policyOf(v1.ClusterPolicySpec{}, 1)
	marked.Annotations = map[string]string{undecodableMark: "cannot be decoded: spec.a is 5"}
	u := newUnit(t)
	u.Meter.ObservePass(metrics.PassStats{})
	s := u.scope()
	note := func() {
		s.all = []v1.ClusterPolicy{*marked, *policyOf(v1.ClusterPolicySpec{}, 1)}
		s.all[1].UID = "other"
		s.notePolicies(u.context())
		u.Expect(u.metrics()).To(HaveKeyWithValue("undecodable_objects ClusterPolicy", 1.0))
	}
	for i, generation := range []int64{1, 1, 2, 2} {
		marked.Generation = generation
		note()
		u.Expect(u.events()).To(HaveLen(int(generation)), "event %d", i)
		u.Expect(u.logged).To(HaveLen(int(generation)))
	}
	u.Expect(u.events()).To(HaveEach("Warning Undecodable: the spec cannot be decoded: spec.a is 5"))
	s.all = []v1.ClusterPolicy{*policyOf(v1.ClusterPolicySpec{}, 3)}
	s.notePolicies(u.context())
	u.Expect(u.metrics()).To(HaveKeyWithValue("undecodable_objects ClusterPolicy", 0.0))
	u.Expect(u.undecodableEvents).To(BeEmpty())
}

// A policy that cannot be decoded keeps its stack and the last decisions. Its status says so, unless a write could drop
// fields.
func TestAPassWithAnUndecodablePolicy(t *testing.T) {
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	policy := policyOf(v1.ClusterPolicySpec{}, 1)
	u := newUnit(t, policy, home, driverCRD(""), nvidiaDriver("default"))
	u.hydrate(gpuNode("a"))
	_, err := u.pass()
	u.Expect(err).NotTo(HaveOccurred())
	decisions := u.Fleet.Basis().Decisions
	u.Expect(u.get(policy)).To(Succeed())
	policy.Annotations = map[string]string{undecodableMark: "cannot be decoded: spec.a is 5"}
	u.Expect(u.server.Update(u.context(), policy)).To(Succeed())
	u.Expect(u.server.Delete(u.context(), &appsv1.DaemonSet{ObjectMeta: namespaced(pluginName)})).To(Succeed())
	u.takeCalls()
	u.Expect(u.pass()).To(BeZero())
	u.Expect(u.takeWrites()).To(ContainElement("update status ClusterPolicy policy"))
	u.Expect(u.get(&appsv1.DaemonSet{ObjectMeta: namespaced(pluginName)})).To(Satisfy(apierrors.IsNotFound))
	u.Expect(u.Fleet.Basis().Decisions).To(BeIdenticalTo(decisions))
	u.Expect(u.get(policy)).To(Succeed())
	u.Expect(condition(policy, v1.ConditionReady)).To(Equal("False Undecodable"))
	u.Expect(u.metrics()).To(HaveKeyWithValue("frozen", 1.0))

	u.clock.Step(statusInterval)
	u.failOnce("cached list DaemonSet", 1)
	_, err = u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.failOnce("unwatch NVIDIADriver", 1)
	u.Expect(u.server.Delete(u.context(), driverCRD(""))).To(Succeed())
	_, err = u.pass()
	u.Expect(err).To(MatchError(errInjected))
}

// The status of a frozen pass is kept, unless the policy cannot be decoded and no write can drop fields.
func TestWhenAStatusIsKept(t *testing.T) {
	for _, test := range []struct {
		frozen      bool
		undecodable string
		missing     []string
		want        bool
	}{
		{}, {frozen: true, want: true}, {frozen: true, undecodable: "a"}, {undecodable: "a", missing: []string{"spec.a"}},
		{frozen: true, undecodable: "a", missing: []string{"spec.a"}, want: true},
		{frozen: true, undecodable: "a", missing: []string{"status.a"}},
	} {
		s := &scope{frozen: test.frozen, undecodable: test.undecodable, missingFields: test.missing}
		NewWithT(t).Expect(s.keepsStatus()).To(Equal(test.want), "%+v", test)
	}
}
