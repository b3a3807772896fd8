package clusterpolicy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

func TestLogRead(t *testing.T) {
	g := NewWithT(t)
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	r := &Reconciler{failedReads: map[string]string{}}
	first, second := errors.New("first"), errors.New("second")
	for _, err := range []error{nil, first, first, second, nil, second} {
		(&scope{Reconciler: r}).logRead(ctx, err, "Reading A failed")
	}
	(&scope{Reconciler: r}).logRead(ctx, second, "Reading B failed")
	g.Expect(logged).To(HaveExactElements(
		And(ContainSubstring("Reading A"), ContainSubstring("first")),
		And(ContainSubstring("Reading A"), ContainSubstring("second")),
		And(ContainSubstring("Reading A"), ContainSubstring("second")),
		And(ContainSubstring("Reading B"), ContainSubstring("second")),
	))
}

// renderedConfigMap returns a ConfigMap of an operand as a step renders it.
func renderedConfigMap(of operand.Name, name string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: namespaced(name),
	}
	object.Labels = map[string]string{labels.Operand: string(of), labels.ManagedBy: labels.ManagedByValue}
	object.OwnerReferences = []metav1.OwnerReference{
		render.OwnerReference(render.Owner{Name: "policy", UID: string(policyUID)}),
	}
	return object
}

// stepOf returns a step that applies an operand with these requirements.
func stepOf(name operand.Name, requires ...operand.Requirement) plan.Step {
	return plan.Step{Operand: operand.Operand{Name: name, Requires: requires}, Action: plan.Apply}
}

// A write outdates pods only if it changes the template of their DaemonSet.
func TestWritesThatKeepPods(t *testing.T) {
	digest := func(is string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", Annotations: map[string]string{labels.TemplateDigest: is}}
	}
	s := &scope{snapshot: observe.Snapshot{DaemonSets: map[string]*appsv1.DaemonSet{"a": {ObjectMeta: digest("1")}}}}
	for name, test := range map[string]struct {
		object client.Object
		want   bool
	}{
		"the same template":     {&appsv1.DaemonSet{ObjectMeta: digest("1")}, true},
		"another template":      {&appsv1.DaemonSet{ObjectMeta: digest("2")}, false},
		"a new DaemonSet":       {&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, false},
		"an object of its name": {&corev1.ConfigMap{ObjectMeta: digest("1")}, false},
	} {
		NewWithT(t).Expect(s.keepsPods(test.object)).To(Equal(test.want), name)
	}
}

// An operand is skipped if one fails that it needs in the cluster, also indirectly, and keeps a failure of its own.
func TestOperandsThatAreSkipped(t *testing.T) {
	g := NewWithT(t)
	needs := func(on operand.Name, scope operand.Scope) operand.Requirement {
		return operand.Requirement{On: on, Scope: scope}
	}
	s := (&Reconciler{Options: Options{Clock: clocktesting.NewFakePassiveClock(time.Unix(1, 0))}}).newScope()
	other := errors.New("other")
	s.planned.Steps = []plan.Step{
		stepOf("failed"), stepOf("works"), stepOf("needs", needs("failed", operand.Cluster)),
		stepOf("indirectly", needs("needs", operand.Cluster)), stepOf("on-node", needs("failed", operand.Node)),
		stepOf("invalid", needs("failed", operand.Cluster)), stepOf("fine", needs("works", operand.Cluster)),
	}
	for _, step := range s.planned.Steps {
		s.objects[step.Operand.Name] = []manifest.Object{renderedConfigMap(step.Operand.Name, "a")}
	}
	s.applied["failed"], s.applied["invalid"] = status.ApplyResult{Err: errInjected}, status.ApplyResult{Err: other}
	s.skipDependents()
	g.Expect(slices.Sorted(maps.Keys(s.objects))).To(Equal(
		[]operand.Name{"failed", "fine", "invalid", "on-node", "works"}))
	g.Expect(s.applied).To(HaveLen(4))
	for name, on := range map[operand.Name]string{"needs": "failed", "indirectly": "needs"} {
		g.Expect(s.applied[name].Err).To(And(MatchError(status.ErrPrerequisite), MatchError(
			"needs "+on+", "+status.ErrPrerequisite.Error()+": see the message of "+on+" in status.operands")))
	}
	g.Expect(s.applied["failed"].Err).To(BeIdenticalTo(errInjected))
	g.Expect(s.applied["invalid"].Err).To(BeIdenticalTo(other))
}

// The outcome of an operand joins those of its objects, over all rounds. Objects that are in sync are not written.
func TestOutcomesOfAnOperand(t *testing.T) {
	u := newUnit(t)
	s := u.scope()
	s.planned.Steps = []plan.Step{stepOf("a"), stepOf("b"), stepOf("c")}
	s.planned.Decisions = decisionsOf(v1.ClusterPolicySpec{})
	other := errors.New("other")
	s.applied["c"] = status.ApplyResult{Err: other}
	s.objects["a"] = []manifest.Object{renderedConfigMap("a", "a1"), renderedConfigMap("a", "a2")}
	s.objects["b"] = []manifest.Object{renderedConfigMap("b", "b")}
	s.objects["c"] = []manifest.Object{renderedConfigMap("c", "c")}
	s.countPending(u.context())
	u.Expect(s.applied).To(Equal(map[operand.Name]status.ApplyResult{
		"a": {Pending: 2}, "b": {Pending: 1}, "c": {Pending: 1, Err: errors.Join(other)},
	}))
	u.Expect(u.takeWrites()).To(BeEmpty())

	all := func(*operand.Operand, manifest.Object) bool { return true }
	s.applied = map[operand.Name]status.ApplyResult{"c": {Err: other}}
	u.onCall(func(_ context.Context, c call) error {
		if c == (call{op: "apply ConfigMap", name: "c"}) {
			return errInjected
		}
		return nil
	})
	s.applyObjects(u.context(), func(o *operand.Operand, object manifest.Object) bool {
		return o.Name != "b" && object.GetName() != "a2"
	})
	u.Expect(u.takeWrites()).To(ConsistOf("apply ConfigMap a1", "apply ConfigMap c"))
	u.Expect(s.applied).To(HaveLen(2))
	u.Expect(s.applied["a"]).To(Equal(status.ApplyResult{Wrote: true}))
	u.Expect(s.applied["c"].Wrote).To(BeFalse())
	u.Expect(s.applied["c"].Err).To(And(MatchError(other), MatchError(errInjected)))
	s.applyObjects(u.context(), all)
	u.Expect(s.applied["a"]).To(Equal(status.ApplyResult{Wrote: true}), "in an earlier round")

	u.onCall(nil)
	u.clock.Step(time.Minute)
	s.applied = map[operand.Name]status.ApplyResult{}
	s.applyObjects(u.context(), all)
	u.Expect(s.applied).To(Equal(map[operand.Name]status.ApplyResult{"a": {}, "b": {}, "c": {Wrote: true}}))
	s.applied = map[operand.Name]status.ApplyResult{}
	s.countPending(u.context())
	u.Expect(s.applied).To(Equal(map[operand.Name]status.ApplyResult{"a": {}, "b": {}, "c": {}}))
	u.onCall(func(context.Context, call) error { return errInjected })
	s.countPending(u.context())
	u.Expect(s.applied["a"].Pending).To(BeZero())
	u.Expect(s.applied["a"].Err).To(MatchError(errInjected))
}

// Objects that are no longer rendered are deleted, but for those of operands that could not be decided or applied.
func TestWhichObjectsArePruned(t *testing.T) {
	var old []client.Object
	for _, name := range []operand.Name{"held", "partly", "failed", "applied"} {
		old = append(old, renderedConfigMap(name, string(name)+"-old"))
	}
	still := renderedConfigMap("applied", "still")
	u := newUnit(t, append(old, still)...)
	prune := func() error {
		s := u.scope()
		s.planned.Steps = []plan.Step{stepOf("held"), stepOf("partly"), stepOf("failed"), stepOf("applied")}
		s.planned.Steps[0].Action, s.planned.Steps[1].KeepUnrendered = plan.Hold, true
		s.applied["failed"] = status.ApplyResult{Err: errInjected}
		s.objects["applied"] = []manifest.Object{still}
		s.prune(u.context())
		return s.err
	}
	u.failOnce("delete ConfigMap", 1)
	u.Expect(prune()).To(And(MatchError(errInjected),
		MatchError(HavePrefix("deleting objects that are no longer needed: "))))
	u.onCall(nil)
	u.clock.Step(time.Minute)
	u.Expect(u.takeWrites()).To(Equal([]string{"delete ConfigMap applied-old"}))
	u.Expect(prune()).To(Succeed())
	u.Expect(u.takeWrites()).To(Equal([]string{"delete ConfigMap applied-old"}))
}

// A failure to render concerns one operand alone. One to read what rendering depends on is also one of the pass.
func TestFailuresToRender(t *testing.T) {
	u := newUnit(t)
	s := u.scope()
	s.planned = plan.Compute(decisionsOf(v1.ClusterPolicySpec{
		DCGMExporter: &v1.DCGMExporterSpec{Enabled: new(false)},
		DevicePlugin: &v1.DevicePluginSpec{
			PlacementSpec: v1.PlacementSpec{ContainerResources: []v1.ContainerResources{{Name: "absent"}}},
		},
	}), nil, []nodeinfo.Facts{observe.Facts(gpuNode("a"))})
	u.failOnce("live list Pod", 1)
	s.render(u.context())
	u.Expect(s.err).To(MatchError(errInjected))
	u.Expect(s.err).NotTo(MatchError(ContainSubstring("absent")))
	u.Expect(s.applied).To(HaveLen(2))
	u.Expect(s.applied["driver"].Err).To(MatchError(errInjected))
	u.Expect(s.applied["device-plugin"].Err).To(MatchError(ContainSubstring("there is no container absent")))
	u.Expect(s.objects).NotTo(HaveKey(operand.Name("driver")))
	u.Expect(s.objects).NotTo(HaveKey(operand.Name("device-plugin")))
	u.Expect(s.objects).NotTo(HaveKey(operand.Name("dcgm-exporter")), "it is disabled")
	u.Expect(s.objects).To(HaveKey(operand.Name("operator-validator")))
	for name, objects := range s.objects {
		for _, object := range objects {
			u.Expect(object.GetOwnerReferences()).To(ConsistOf(And(HaveField("Name", "policy"), HaveField("UID", policyUID))),
				"%s of %s", object.GetName(), name)
		}
	}
}

// The name of the driver is looked up unless it is known to be in use.
func TestWhoseNameADaemonSetGets(t *testing.T) {
	inUse := renderedDriver(driverName, "rocky9-amd64")
	inUse.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{labels.App: driverName}}
	pod := driverPodOf("left", "gone")
	pod.Labels = map[string]string{labels.App: driverName, labels.Pool: "rocky9-amd64"}
	used := map[string]rollout.Live{driverName: {Variant: "rocky9-amd64", App: driverName}}
	elsewhere := renderedDriver(driverName, "rhel9-amd64")
	elsewhere.Namespace = driverName
	steps := plan.Compute(decisionsOf(v1.ClusterPolicySpec{}), nil, []nodeinfo.Facts{observe.Facts(gpuNode("a"))}).Steps
	stepNamed := func(name operand.Name) plan.Step {
		return steps[slices.IndexFunc(steps, func(step plan.Step) bool { return step.Operand.Name == name })]
	}
	for name, test := range map[string]struct {
		objects []client.Object
		cached  *appsv1.DaemonSet
		fails   string
		want    map[string]rollout.Live
		reads   int
	}{
		"free":            {want: map[string]rollout.Live{}, reads: 3},
		"elsewhere":       {objects: []client.Object{elsewhere}, want: map[string]rollout.Live{}, reads: 3},
		"of a DaemonSet":  {objects: []client.Object{inUse}, want: used, reads: 2},
		"of a pod":        {objects: []client.Object{pod}, want: used, reads: 3},
		"in the cache":    {cached: inUse, want: used, reads: 1},
		"unreadable":      {fails: "live get DaemonSet", reads: 2},
		"unreadable pods": {fails: "live list Pod", reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, test.objects...)
			s := u.scope()
			if test.cached != nil {
				cached := test.cached.DeepCopy()
				cached.Labels = map[string]string{labels.Operand: "driver"}
				s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{driverName: cached}
			}
			u.failOnce(test.fails, 1)
			live, err := s.liveDaemonSets(u.context(), stepNamed("driver"))
			u.Expect(u.takeCalls()).To(HaveLen(test.reads))
			if test.fails != "" {
				u.Expect(err).To(MatchError(errInjected))
				return
			}
			u.Expect(err).NotTo(HaveOccurred())
			u.Expect(live).To(Equal(test.want))
		})
	}
	u := newUnit(t)
	u.Expect(u.scope().liveDaemonSets(u.context(), stepNamed("device-plugin"))).To(BeEmpty())
	u.Expect(u.takeCalls()).To(BeEmpty(), "its pods may be replaced")
}

// The order in which kube-controller-manager creates pods: first what others wait for.
func TestTheRoundOfAnObject(t *testing.T) {
	g := NewWithT(t)
	g.Expect(isPrerequisite(&corev1.ConfigMap{})).To(BeTrue())
	g.Expect(isPrerequisite(&nodev1.RuntimeClass{})).To(BeTrue())
	g.Expect(isPrerequisite(&appsv1.DaemonSet{})).To(BeFalse())
	for _, test := range []struct{ updatesOnDelete, isInjector bool }{
		{true, false}, {false, true}, {true, true}, {false, false},
	} {
		o := &operand.Operand{UpdatesOnDelete: test.updatesOnDelete, IsInjector: test.isInjector}
		g.Expect(isAwaited(o)).To(Equal(test.updatesOnDelete || test.isInjector), "%+v", test)
	}
}

// Decisions follow from the spec and the operator's options.
func TestInputOfDecisions(t *testing.T) {
	u := newUnit(t)
	u.Metrics = operand.MetricsEndpoint{Certified: true}
	u.Images = image.Overrides{"driver": {Image: "driver"}}
	u.Proxy = v1.ProxySpec{HTTPSProxy: "http://a"}
	s := u.scope()
	s.policy.Spec = mirrorSpec()
	u.Expect(s.specInput()).To(Equal(operand.Input{
		Spec: effective.Of(mirrorSpec()), Namespace: namespace, OperatorImage: "example.com/gpu-operator:v1",
		OperatorMetrics: operand.MetricsEndpoint{Certified: true}, Images: u.Images,
		Proxy: v1.ProxySpec{HTTPSProxy: "http://a"},
	}))
}

// Nodes keep their labels while DaemonSets of a deleted policy run, which is logged once.
func TestOrphanedDaemonSetsAreLoggedOnce(t *testing.T) {
	orphan := applied("driver", driverName)
	orphan.OwnerReferences = nil
	u := newUnit(t)
	u.hydrate(gpuNode("a"))
	logged := func() (found int) {
		for _, line := range u.logged {
			if strings.Contains(line, "No ClusterPolicy exists") && strings.Contains(line, driverName) {
				found++
			}
		}
		return found
	}
	for i, step := range []struct {
		orphaned bool
		logged   int
	}{{true, 1}, {true, 1}, {false, 1}, {true, 2}} {
		if step.orphaned {
			u.Expect(u.server.Create(u.context(), orphan.DeepCopy())).To(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
		} else {
			u.Expect(u.server.Delete(u.context(), orphan)).To(Succeed())
		}
		u.Expect(u.pass()).To(BeZero())
		u.Expect(u.Fleet.Basis().KeepNodes).To(Equal(step.orphaned), "pass %d", i)
		u.Expect(logged()).To(Equal(step.logged), "pass %d", i)
		released := slices.Contains(u.takeCalls(), call{op: "live get Namespace", name: namespace})
		u.Expect(released).To(Equal(!step.orphaned), "pass %d", i)
	}
}
