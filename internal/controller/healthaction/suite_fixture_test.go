package healthaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/healthaction"
	planned "github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const boot = "boot"

// fixture is a fleet, and the clock that the spec advances.
type fixture struct {
	client client.WithWatch
	clock  *clocktesting.FakePassiveClock
	fleet  *fleet.Fleet
	spec   v1.ClusterPolicySpec
	nodes  []string
	*manager
}

// manager is one manager of the fixture's fleet.
type manager struct {
	reconciler *healthaction.Reconciler
	// patches are the nodes that it has patched. refuse is the API server's answer to the next patches, and unread that to
	// lists; nil admits them.
	patches        []string
	refuse, unread error
	// denies reports whether an admission policy denies the patch of the node; nil admits all.
	denies func(node, patch string) bool
}

// acting is a spec with the health agent that taints for a reset, and cordons for a reboot.
func acting() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Health: &v1.HealthSpec{
		Agent:   &v1.HealthAgentSpec{Enabled: new(true)},
		Actions: &v1.HealthActionsSpec{Reset: v1.HealthActionTaint, Reboot: v1.HealthActionCordon},
	}}
}

// newFixture returns a fleet of nodes with healthy GPUs.
func newFixture(ctx context.Context, nodes ...string) *fixture {
	GinkgoHelper()
	direct, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return newFixtureOn(ctx, direct, nodes...)
}

// newFakeFixture is newFixture on a fake API server, for passes that are repeated many times.
func newFakeFixture(ctx context.Context, nodes ...string) *fixture {
	GinkgoHelper()
	return newFixtureOn(ctx, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).Build(),
		nodes...)
}

func newFixtureOn(ctx context.Context, direct client.WithWatch, nodes ...string) *fixture {
	GinkgoHelper()
	f := &fixture{
		client: direct, fleet: fleet.New(), spec: acting(), nodes: nodes,
		clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)),
	}
	DeferCleanup(f.remove)
	f.manager = f.newManager()
	f.fleet.Hydrate(nil)
	for _, name := range nodes {
		f.addNode(ctx, name)
	}
	f.play(ctx)
	return f
}

// addNode creates a node with healthy GPUs.
func (f *fixture) addNode(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(f.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{
			labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
			labels.GPUProduct: "H100",
		},
		Annotations: map[string]string{labels.GPUHealth: report("")},
	}})).To(Succeed())
	f.updateStatus(ctx, name)
}

// replaceNode removes a node, and adds one with another name.
func (f *fixture) replaceNode(ctx context.Context, i int, name string) {
	GinkgoHelper()
	left := f.nodes[i]
	Expect(f.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: left}})).To(Succeed())
	f.fleet.Delete(left)
	f.nodes[i] = name
	f.addNode(ctx, name)
	f.play(ctx)
}

// newManager returns another manager of the fleet.
func (f *fixture) newManager() *manager {
	m := &manager{}
	c := interceptor.NewClient(f.client, interceptor.Funcs{
		Patch: func(
			ctx context.Context, base client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			m.patches = append(m.patches, object.GetName())
			if m.refuse != nil {
				return m.refuse
			}
			content, err := patch.Data(object)
			Expect(err).NotTo(HaveOccurred())
			if m.denies != nil && m.denies(object.GetName(), string(content)) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, object.GetName(), errors.New("no"))
			}
			return base.Patch(ctx, object, patch, options...)
		},
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if m.unread != nil {
				return m.unread
			}
			return base.List(ctx, list, options...)
		},
	})
	m.reconciler = healthaction.New(healthaction.Options{
		Client: c, Fleet: f.fleet, Clock: f.clock, Timing: healthaction.DefaultTiming(),
	})
	return m
}

// play plays the node controller: it assesses all nodes by the spec, as usable.
func (f *fixture) play(ctx context.Context) {
	GinkgoHelper()
	in := operand.Input{
		Spec: effective.Of(f.spec), Namespace: cluster.OperatorNamespace, OperatorImage: "example.com/gpu-operator:v1",
	}
	basis := f.fleet.Publish(fleet.Basis{
		Policy: &v1.ClusterPolicy{Spec: f.spec}, Decisions: plan.Decide(catalogue, in),
	}, f.clock.Now())
	for _, name := range f.nodes {
		f.assess(ctx, name, basis)
	}
}

func (f *fixture) assess(ctx context.Context, name string, basis *fleet.Basis) {
	GinkgoHelper()
	facts := observe.Facts(f.node(ctx, name))
	entry := &fleet.Entry{Facts: facts, BasisVersion: basis.Version, Planned: &fleet.PlannedNode{}}
	if basis.Decisions != nil {
		entry.Planned.NodePlan = basis.Decisions.ForNode(facts)
	}
	entry.Latest.Usable = true
	f.fleet.Set(entry)
}

// report is what the agent reports; fault is one fault in JSON, or empty for none.
func report(fault string) string { return fmt.Sprintf(`{"boot":%q,"faults":[%s]}`, boot, fault) }

// fails makes the agent of the node report a fault of this class that began so long ago.
func (f *fixture) fails(ctx context.Context, node, class string, ago time.Duration) {
	GinkgoHelper()
	since := f.clock.Now().Add(-ago).Format(time.RFC3339)
	f.annotate(ctx, node, labels.GPUHealth, report(fmt.Sprintf(
		`{"pci":"0000:1b:00.0","class":%q,"reason":"GPUResetRequired","xid":46,"since":%q}`, class, since)))
}

// recovers makes the agent of the node report no fault.
func (f *fixture) recovers(ctx context.Context, node string) {
	GinkgoHelper()
	f.annotate(ctx, node, labels.GPUHealth, report(""))
}

// annotate sets an annotation of a node; an empty value removes it.
func (f *fixture) annotate(ctx context.Context, node, key, value string) {
	GinkgoHelper()
	f.update(ctx, node, func(object *corev1.Node) {
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[key] = value
		if value == "" {
			delete(object.Annotations, key)
		}
	})
}

// settle runs passes of the manager until it writes nothing, and returns the nodes that it has patched.
func (f *fixture) settle(ctx context.Context) []string {
	GinkgoHelper()
	f.patches = nil
	for count := -1; count != len(f.patches); {
		count = len(f.patches)
		f.pass(ctx, f.manager)
		Expect(len(f.patches)).To(BeNumerically("<", 50), "it comes to rest")
	}
	return f.patches
}

// pass runs one pass of a manager.
func (f *fixture) pass(ctx context.Context, m *manager) time.Duration {
	GinkgoHelper()
	result, err := m.reconciler.Reconcile(ctx, ctrl.Request{})
	Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// passFor runs a pass of the manager each 10 seconds for this time.
func (f *fixture) passFor(ctx context.Context, limit time.Duration) {
	GinkgoHelper()
	const step = 10 * time.Second
	for range limit / step {
		f.pass(ctx, f.manager)
		f.clock.SetTime(f.clock.Now().Add(step))
	}
}

// acted returns what is done with the nodes, one word for each: tainted, cordoned, both or neither.
func (f *fixture) acted(ctx context.Context) []string {
	GinkgoHelper()
	var found []string
	for _, name := range f.nodes {
		node, word := f.node(ctx, name), "-"
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "nvidia.com/gpu-operator.unhealthy" && t.Effect == corev1.TaintEffectNoSchedule
		})
		switch {
		case tainted && node.Spec.Unschedulable:
			word = "both"
		case tainted:
			word = "tainted"
		case node.Spec.Unschedulable:
			word = "cordoned"
		}
		found = append(found, word)
	}
	return found
}

// text returns what users are shown of the node.
func (f *fixture) text(node string) string { return f.verdict(node).Text }

func (f *fixture) verdict(node string) planned.Verdict {
	verdict, _ := f.fleet.HealthAction(node)
	return verdict
}

func (f *fixture) node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(f.client.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

func (f *fixture) update(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node := f.node(ctx, name)
		change(node)
		return f.client.Update(ctx, node)
	})).To(Succeed())
}

func (f *fixture) updateStatus(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node := f.node(ctx, name)
		node.Status.NodeInfo = corev1.NodeSystemInfo{
			Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1", BootID: boot,
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return f.client.Status().Update(ctx, node)
	})).To(Succeed())
}

// remove deletes the nodes of the fixture.
func (f *fixture) remove(ctx context.Context) {
	GinkgoHelper()
	for _, name := range f.nodes {
		Expect(client.IgnoreNotFound(f.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).
			To(Succeed())
	}
}

var errUnavailable = errors.New("the API server is not available")
