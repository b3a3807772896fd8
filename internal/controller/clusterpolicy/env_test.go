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
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Names of objects that the operator installs.
const (
	pluginName   = "nvidia-device-plugin-daemonset"
	driverName   = "nvidia-driver-daemonset"
	toolkitName  = "nvidia-container-toolkit-daemonset"
	exporterName = "nvidia-dcgm-exporter"
	clientsName  = "default-gpu-clients"
)

// specRecordWrite is the write that records a new spec as the last applied one.
const specRecordWrite = "apply Service gpu-operator"

// statusInterval is longer than any minimum interval between two writes of a status.
const statusInterval = 11 * time.Second

// testEnv is a Reconciler that uses the API server of the suite, with its own clock, fleet and clients.
type testEnv struct {
	*callRecorder
	clock      *clocktesting.FakeClock
	fleet      *fleet.Fleet
	reconciler *Reconciler
	nodes      []*corev1.Node
}

// newEnv returns a testEnv with an empty cluster and these nodes, not assessed yet. Without nodes the fleet is not
// hydrated.
func newEnv(nodes ...*corev1.Node) *testEnv {
	GinkgoHelper()
	env := &testEnv{
		callRecorder: &callRecorder{},
		clock:        clocktesting.NewFakeClock(time.Now().Truncate(time.Second)),
		fleet:        fleet.New(),
		nodes:        nodes,
	}
	options := env.options(true, env.clock, env.fleet)
	mapper := mapper()
	mapper.calls = env.callRecorder
	toolkit := observe.NewDriverToolkit(&recordingCache{images, env.callRecorder, "image"}, mapper, env.clock)
	start(toolkit)
	drivers := observe.NewNVIDIADrivers(kindsCache, mapper, env.clock, options.DriverStatus.Wrote)
	start(drivers)
	options.DriverToolkit, options.OpenShift = toolkit, env.newOpenShift()
	options.References = &recordingCache{references, env.callRecorder, "reference"}
	options.OptionalKinds, options.NVIDIADrivers = env.newOptionalKinds(), drivers
	env.reconciler = New(options)
	if len(nodes) > 0 {
		env.hydrate()
	}
	DeferCleanup(func(ctx SpecContext) {
		env.onCall(nil)
		Expect(toolkit.StopWatch(ctx)).To(Succeed())
		for _, watch := range env.reconciler.OpenShift.Watches() {
			Expect(watch.StopWatch(ctx)).To(Succeed())
		}
		Expect(drivers.StopWatch(ctx)).To(Succeed())
		cleanUp(ctx)
	})
	return env
}

func allOperands() operand.Catalogue {
	catalogue, err := operands.Catalogue()
	must(err)
	return catalogue
}

// options returns the Options of a Reconciler whose calls are recorded, without those that watch kinds.
func (c *callRecorder) options(cached bool, clk clock.PassiveClock, of *fleet.Fleet) Options {
	catalogue := allOperands()
	written, live := c.client("cached", cached), c.client("live", false)
	timing := apply.DefaultTiming()
	// The machine that runs the suite may be slow.
	timing.RoundTimeout = time.Minute
	recorder := events.NewRecorder(written, clk, func(string) {})
	return Options{
		Client: written, Live: live, Applier: apply.New(written, live, clk, timing),
		Status: statuswriter.New(written, clk, recorder, catalogue, statuswriter.DefaultTiming()),
		Fleet:  of, Catalogue: catalogue, Namespace: namespace, OperatorImage: "example.com/gpu-operator:v1",
		CreateFailures: observe.NewCreateFailures(live, namespace, clk),
		StartFailures:  observe.NewStartFailures(live, namespace, clk),
		Schema:         &observe.Schema{Definition: crd.OfClusterPolicy(), Cached: written, Live: live},
		DriverSchema:   &observe.Schema{Definition: crd.OfNVIDIADriver(), Cached: written, Live: live},
		DriverStatus:   statuswriter.NewDriverWriter(written, clk, statuswriter.DefaultTiming()),
		Meter:          metrics.New(clk), Clock: clk, Timing: DefaultTiming(),
	}
}

// hydrate adds the nodes to the fleet, not assessed yet.
func (env *testEnv) hydrate() {
	var entries []*fleet.Entry
	for _, node := range env.nodes {
		entries = append(entries, &fleet.Entry{Facts: observe.Facts(node)})
	}
	env.fleet.Hydrate(entries)
}

// forgetNodes gives the Reconciler a fleet in which no node is assessed, as after a restart.
func (env *testEnv) forgetNodes() {
	env.fleet = fleet.New()
	env.reconciler.Fleet = env.fleet
	env.hydrate()
}

// newOptionalKinds returns OptionalKinds without watches, and starts it.
func (env *testEnv) newOptionalKinds() *OptionalKinds {
	GinkgoHelper()
	mapper := mapper()
	mapper.calls = env.callRecorder
	kinds := NewOptionalKinds(&recordingCache{kindsCache, env.callRecorder, "kind"}, mapper, env.clock)
	start(kinds)
	return kinds
}

// newOpenShift returns an OpenShift without watches, and starts it.
func (env *testEnv) newOpenShift() *observe.OpenShift {
	GinkgoHelper()
	mapper := mapper()
	mapper.calls = env.callRecorder
	openShift := observe.NewOpenShift(&recordingCache{proxies, env.callRecorder, "proxy"},
		&recordingCache{versions, env.callRecorder, "version"}, mapper, env.clock)
	for _, watch := range openShift.Watches() {
		start(watch)
	}
	return openShift
}

// start runs a Runnable, as a manager does, until the spec or its container ends.
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

// gpuNode returns a node with GPUs and the labels of node discovery.
func gpuNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
			labels.DiscoveryKernel: "6.8.0-generic",
		}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			Architecture: "amd64", OSImage: "Ubuntu 24.04.3 LTS", ContainerRuntimeVersion: "containerd://2.2.1",
			KubeletVersion: "v1.36.3",
		}},
	}
}

// migNode returns a node whose GPUs support MIG.
func migNode(name string) *corev1.Node {
	node := gpuNode(name)
	node.Labels[labels.MIGCapable] = labels.True
	return node
}

// cleanUp deletes the policies and all objects of the Reconciler.
func cleanUp(ctx context.Context) {
	GinkgoHelper()
	deletePolicies(ctx)
	removeStack(ctx)
	home := &corev1.Namespace{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, home)).To(Succeed())
	for _, key := range labels.PodSecurity() {
		delete(home.Labels, key)
	}
	Expect(admin.Update(ctx, home)).To(Succeed())
}

// removeStack acts as the garbage collector after the deletion of a policy.
func removeStack(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.DeleteAllOf(ctx, &nodev1.RuntimeClass{})).To(Succeed())
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.Event{}} {
		Expect(admin.DeleteAllOf(ctx, kind, client.InNamespace(namespace))).To(Succeed())
	}
}

// deletePolicies deletes all policies without waiting until their stack is removed.
func deletePolicies(ctx context.Context) {
	GinkgoHelper()
	policies := &v1.ClusterPolicyList{}
	Expect(admin.List(ctx, policies)).To(Succeed())
	for i := range policies.Items {
		forgetPolicy(ctx, &policies.Items[i])
	}
}

// forgetPolicy deletes a policy as if the operator had removed its stack.
func forgetPolicy(ctx context.Context, policy *v1.ClusterPolicy) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(admin.Delete(ctx, policy))).To(Succeed())
	Expect(cluster.DropFinalizers(ctx, admin, policy)).To(Succeed())
}

// createPolicy creates a policy with this spec.
func (env *testEnv) createPolicy(ctx context.Context, name string, spec v1.ClusterPolicySpec) {
	GinkgoHelper()
	Expect(admin.Create(ctx, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})).To(Succeed())
}

// editSpec changes the spec of the policy "policy".
func (env *testEnv) editSpec(ctx context.Context, change func(*v1.ClusterPolicySpec)) {
	GinkgoHelper()
	policy := env.policy(ctx)
	change(&policy.Spec)
	Expect(admin.Update(ctx, policy)).To(Succeed())
}

func (env *testEnv) policy(ctx context.Context) *v1.ClusterPolicy {
	GinkgoHelper()
	return getPolicy(ctx, "policy")
}

func getPolicy(ctx context.Context, name string) *v1.ClusterPolicy {
	GinkgoHelper()
	policy := &v1.ClusterPolicy{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: name}, policy)).To(Succeed())
	return policy
}

// reconcileAfter advances the clock and runs a pass. It returns when the next one is due.
func (env *testEnv) reconcileAfter(ctx context.Context, wait time.Duration) (time.Duration, error) {
	env.clock.Step(wait)
	result, err := env.reconciler.Reconcile(ctx, clusterRequest)
	return result.RequeueAfter, err
}

// pass is reconcileAfter for a pass that must succeed.
func (env *testEnv) pass(ctx context.Context, wait time.Duration) time.Duration {
	GinkgoHelper()
	next, err := env.reconcileAfter(ctx, wait)
	Expect(err).NotTo(HaveOccurred())
	return next
}

// assessNodes acts as the node controller: all nodes are assessed by the published basis, and ready, with a pod of each
// DaemonSet.
func (env *testEnv) assessNodes(ctx context.Context) {
	GinkgoHelper()
	basis := env.fleet.Basis()
	if basis == nil {
		return
	}
	running := map[operand.Name]readiness.Verdict{}
	for _, ds := range daemonSets(ctx) {
		running[operand.Name(ds.Labels[labels.Operand])] = readiness.Verdict{}
	}
	for _, node := range env.nodes {
		assessed := assess.Assessment{
			NodeVerdict: readiness.NodeVerdict{Stage: v1.StageValidated}, Operands: running, Usable: true,
			Since: env.clock.Now(), At: env.clock.Now(),
		}
		env.fleet.Set(&fleet.Entry{
			Facts: observe.Facts(
				node,
			), BasisVersion: basis.Version, Latest: assessed, Report: assess.Report{Assessment: assessed},
		})
	}
}

// rollOut acts as the DaemonSet controller: each DaemonSet has a ready pod on every node.
func (env *testEnv) rollOut(ctx context.Context) {
	GinkgoHelper()
	for _, ds := range daemonSets(ctx) {
		count := int32(len(env.nodes))
		ds.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: ds.Generation, DesiredNumberScheduled: count, CurrentNumberScheduled: count,
			UpdatedNumberScheduled: count, NumberReady: count,
		}
		Expect(admin.Status().Update(ctx, ds)).To(Succeed())
	}
}

// settle runs passes until nothing changes any more; the policy must be ready then. It discards the recorded calls.
func (env *testEnv) settle(ctx context.Context) {
	GinkgoHelper()
	env.converge(ctx)
	policy := env.policy(ctx)
	Expect(condition(policy, v1.ConditionReady)).To(Equal("True Reconciled"), "%s", message(policy, v1.ConditionReady))
}

// converge runs passes until nothing is written any more and the status is of the current generation.
func (env *testEnv) converge(ctx context.Context) {
	GinkgoHelper()
	const maxPasses = 6
	for range maxPasses {
		env.rollOut(ctx)
		env.assessNodes(ctx)
		env.takeCalls()
		env.pass(ctx, statusInterval)
		policy := env.policy(ctx)
		if len(env.takeWrites()) == 0 && env.fleet.View().UnassessedCount(env.fleet.Basis()) == 0 &&
			policy.Status.ObservedGeneration == policy.Generation {
			return
		}
	}
	Fail("the Reconciler does not stop writing")
}

// reportStatus runs the passes after which the status shows the results of an earlier one, without advancing the clock:
// first the nodes are assessed by its basis, then with its DaemonSets. It returns when the next pass is due.
func (env *testEnv) reportStatus(ctx context.Context) time.Duration {
	GinkgoHelper()
	env.assessNodes(ctx)
	env.pass(ctx, 0)
	env.rollOut(ctx)
	env.assessNodes(ctx)
	return env.pass(ctx, 0)
}

// condition returns status and reason of a condition, empty if the policy has none.
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

// operandOf returns the status of an operand.
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

// daemonSet returns the DaemonSet with this name, nil if it does not exist.
func daemonSet(ctx context.Context, name string) *appsv1.DaemonSet {
	GinkgoHelper()
	for _, ds := range daemonSets(ctx) {
		if ds.Name == name {
			return ds
		}
	}
	return nil
}

// exists reports whether an object of this kind and name exists, in the operator's namespace if it is namespaced.
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
