package clusterpolicy

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/statuswriter"
)

// Objects of the stack that specs name.
const (
	pluginName   = "nvidia-device-plugin-daemonset"
	driverName   = "nvidia-driver-daemonset"
	exporterName = "nvidia-dcgm-exporter"
	clientsName  = "default-gpu-clients"
)

// record is the write by which another spec is recorded as the last applied one.
const record = "apply Service gpu-operator"

// longer is more than every interval between two writes of a status.
const longer = 11 * time.Second

// bed is a Reconciler at the API server of the suite, with a clock, a fleet and clients of its own.
type bed struct {
	*calls
	clock      *clocktesting.FakeClock
	fleet      *fleet.Fleet
	reconciler *Reconciler
	nodes      []*corev1.Node
}

// newBed has an empty cluster and these nodes, none of which is assessed yet. Without any the fleet is not hydrated.
func newBed(nodes ...*corev1.Node) *bed {
	GinkgoHelper()
	catalogue, err := operands.Catalogue()
	Expect(err).NotTo(HaveOccurred())
	b := &bed{calls: &calls{}, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), fleet: fleet.New(), nodes: nodes}
	c, live := b.client("cached", true), b.client("live", false)
	mapper := mapper()
	mapper.calls = b.calls
	toolkit := observe.NewDriverToolkit(&tappedCache{images, b.calls, "image"}, mapper, b.clock)
	start(toolkit)
	timing := apply.DefaultTiming()
	// Machines that run the suite may be slow.
	timing.Patience = time.Minute
	recorder := events.NewRecorder(c, b.clock, func(string) {})
	b.reconciler = New(Options{
		Client:         c,
		Live:           live,
		Applier:        apply.New(c, live, b.clock, timing),
		Status:         statuswriter.New(c, b.clock, recorder, catalogue, statuswriter.DefaultTiming()),
		Fleet:          b.fleet,
		Catalogue:      catalogue,
		Namespace:      namespace,
		HelperImage:    "example.com/gpu-operator:v1",
		DriverToolkit:  toolkit,
		CreateFailures: observe.NewCreateFailures(live, namespace, b.clock),
		References:     &tappedCache{references, b.calls, "reference"},
		Schema:         &observe.Schema{Cached: c, Live: live},
		Kinds:          b.kinds(),
		Meter:          metrics.New(b.clock),
		Clock:          b.clock,
		Timing:         DefaultTiming(),
	})
	if len(nodes) > 0 {
		var entries []*fleet.Entry
		for _, node := range nodes {
			entries = append(entries, &fleet.Entry{Facts: observe.Facts(node)})
		}
		b.fleet.Hydrate(entries)
	}
	DeferCleanup(func(ctx SpecContext) {
		b.answers(nil)
		Expect(toolkit.StopWatch(ctx)).To(Succeed())
		empty(ctx)
	})
	return b
}

// kinds are the optional kinds, of which none is watched yet.
func (b *bed) kinds() *OptionalKinds {
	GinkgoHelper()
	mapper := mapper()
	mapper.calls = b.calls
	kinds := NewOptionalKinds(&tappedCache{kindsCache, b.calls, "kind"}, mapper, b.clock)
	start(kinds)
	return kinds
}

// start runs what a manager would run, until the spec or its container ends.
func start(runnable manager.Runnable) {
	GinkgoHelper()
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runnable.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})
}

// gpuNode is a node with GPUs, as discovery labels it.
func gpuNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
			labels.DiscoveryKernel: "6.8.0-generic",
		}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			Architecture: "amd64", OSImage: "Ubuntu 24.04.3 LTS", ContainerRuntimeVersion: "containerd://2.2.1", KubeletVersion: "v1.36.3",
		}},
	}
}

// migNode is a node whose GPUs can be partitioned.
func migNode(name string) *corev1.Node {
	node := gpuNode(name)
	node.Labels[labels.MIGCapable] = labels.True
	return node
}

// empty removes all that specs leave in the cluster, and what the Reconciler makes there.
func empty(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.DeleteAllOf(ctx, &v1.ClusterPolicy{})).To(Succeed())
	removeStack(ctx)
	home := &corev1.Namespace{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, home)).To(Succeed())
	for _, key := range labels.PodSecurity() {
		delete(home.Labels, key)
	}
	Expect(admin.Update(ctx, home)).To(Succeed())
}

// removeStack is the garbage collector after the deletion of a policy.
func removeStack(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.DeleteAllOf(ctx, &nodev1.RuntimeClass{})).To(Succeed())
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.Event{}} {
		Expect(admin.DeleteAllOf(ctx, kind, client.InNamespace(namespace))).To(Succeed())
	}
}

// create creates a policy with this spec.
func (b *bed) create(ctx context.Context, name string, spec v1.ClusterPolicySpec) {
	GinkgoHelper()
	Expect(admin.Create(ctx, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})).To(Succeed())
}

// edit changes the spec of the policy that newBed's specs call "policy".
func (b *bed) edit(ctx context.Context, change func(*v1.ClusterPolicySpec)) {
	GinkgoHelper()
	policy := b.policy(ctx)
	change(&policy.Spec)
	Expect(admin.Update(ctx, policy)).To(Succeed())
}

func (b *bed) policy(ctx context.Context) *v1.ClusterPolicy {
	GinkgoHelper()
	return named(ctx, "policy")
}

func named(ctx context.Context, name string) *v1.ClusterPolicy {
	GinkgoHelper()
	policy := &v1.ClusterPolicy{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: name}, policy)).To(Succeed())
	return policy
}

// after makes a pass once that time is over, and returns after how long the next one is due.
func (b *bed) after(ctx context.Context, wait time.Duration) (time.Duration, error) {
	b.clock.Step(wait)
	result, err := b.reconciler.Reconcile(ctx, theCluster)
	return result.RequeueAfter, err
}

// pass makes a pass that must succeed.
func (b *bed) pass(ctx context.Context, wait time.Duration) time.Duration {
	GinkgoHelper()
	next, err := b.after(ctx, wait)
	Expect(err).NotTo(HaveOccurred())
	return next
}

// assess is the node controller: all nodes are assessed by what is published, and ready, with a pod of each DaemonSet.
func (b *bed) assess(ctx context.Context) {
	GinkgoHelper()
	basis := b.fleet.Basis()
	if basis == nil {
		return
	}
	running := map[operand.Name]readiness.Verdict{}
	for _, ds := range daemonSets(ctx) {
		running[operand.Name(ds.Labels[labels.Operand])] = readiness.Verdict{}
	}
	for _, node := range b.nodes {
		assessed := assess.Assessment{
			NodeVerdict: readiness.NodeVerdict{Stage: v1.StageValidated}, Operands: running, Usable: true,
			Since: b.clock.Now(), At: b.clock.Now(),
		}
		b.fleet.Set(&fleet.Entry{
			Facts: observe.Facts(node), Basis: basis.Version, Latest: assessed, Report: assess.Report{Assessment: assessed},
		})
	}
}

// roll is the DaemonSet controller: each DaemonSet has a pod on every node that its operand needs.
func (b *bed) roll(ctx context.Context) {
	GinkgoHelper()
	for _, ds := range daemonSets(ctx) {
		count := int32(len(b.nodes))
		ds.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: ds.Generation, DesiredNumberScheduled: count, CurrentNumberScheduled: count, UpdatedNumberScheduled: count, NumberReady: count,
		}
		Expect(admin.Status().Update(ctx, ds)).To(Succeed())
	}
}

// settle makes passes until nothing changes any more; the policy must be ready then. The calls until then are forgotten.
func (b *bed) settle(ctx context.Context) {
	GinkgoHelper()
	b.converge(ctx)
	policy := b.policy(ctx)
	Expect(condition(policy, v1.ConditionReady)).To(Equal("True Reconciled"), "%s", message(policy, v1.ConditionReady))
}

// converge makes passes until nothing is written any more and the status is that of the policy as it is.
func (b *bed) converge(ctx context.Context) {
	GinkgoHelper()
	const enough = 6
	for range enough {
		b.roll(ctx)
		b.assess(ctx)
		b.taken()
		b.pass(ctx, longer)
		policy := b.policy(ctx)
		if len(b.writes()) == 0 && b.fleet.View().StaleCount(b.fleet.Basis()) == 0 && policy.Status.ObservedGeneration == policy.Generation {
			return
		}
	}
	Fail("the Reconciler goes on writing")
}

// report makes the passes after which the status reports what an earlier one has done, without waiting: the nodes are
// assessed by what that has published, and by the DaemonSets that it has written. It returns when the next pass is due.
func (b *bed) report(ctx context.Context) time.Duration {
	GinkgoHelper()
	b.assess(ctx)
	b.pass(ctx, 0)
	b.roll(ctx)
	b.assess(ctx)
	return b.pass(ctx, 0)
}

// condition is one of the policy, as status and reason; empty for none.
func condition(policy *v1.ClusterPolicy, kind string) string {
	found := meta.FindStatusCondition(policy.Status.Conditions, kind)
	if found == nil {
		return ""
	}
	return string(found.Status) + " " + found.Reason
}

func message(policy *v1.ClusterPolicy, kind string) string {
	if found := meta.FindStatusCondition(policy.Status.Conditions, kind); found != nil {
		return found.Message
	}
	return ""
}

// operandOf is what the policy reports of an operand.
func operandOf(policy *v1.ClusterPolicy, name string) v1.OperandStatus {
	GinkgoHelper()
	for _, found := range policy.Status.Operands {
		if found.Name == name {
			return found
		}
	}
	Fail(fmt.Sprintf("the status of policy %s has no operand %s", policy.Name, name))
	return v1.OperandStatus{}
}

func daemonSets(ctx context.Context) []*appsv1.DaemonSet {
	GinkgoHelper()
	list := &appsv1.DaemonSetList{}
	Expect(admin.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	var found []*appsv1.DaemonSet
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found
}

// daemonSet returns the DaemonSet of that name, nil if there is none.
func daemonSet(ctx context.Context, name string) *appsv1.DaemonSet {
	GinkgoHelper()
	for _, ds := range daemonSets(ctx) {
		if ds.Name == name {
			return ds
		}
	}
	return nil
}

// exists reports whether the cluster has the object in the operator's namespace, or in none.
func exists(ctx context.Context, object client.Object, name string) bool {
	GinkgoHelper()
	key := client.ObjectKey{Name: name, Namespace: namespace}
	if _, is := object.(*nodev1.RuntimeClass); is {
		key.Namespace = ""
	}
	err := admin.Get(ctx, key, object)
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}
