package upgrade_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	driver    = "driver"
	validator = "operator-validator"
	pool      = "ubuntu24.04-amd64"
	users     = "default"
)

// fixture is a fleet whose driver is upgraded, and the clock that the spec advances.
type fixture struct {
	client client.WithWatch
	clock  *clocktesting.FakePassiveClock
	fleet  *fleet.Fleet
	spec   v1.ClusterPolicySpec
	// target is the digest of the driver's template.
	target string
	nodes  []string
	// deleted: the policy is deleted. blocked: the API server rejects evictions, as a PodDisruptionBudget allows none.
	deleted bool
	blocked atomic.Bool
	// refuse returns why the API server refuses a write of the managers; nil for one that it accepts.
	refuse func(verb string, object client.Object, content []byte) error
	// unoffered: all works on the nodes, but the spec leaves it to others to offer their GPUs, and nothing does.
	unoffered bool
	*manager
}

// manager is one manager of the fixture's fleet.
type manager struct {
	*calls
	reconciler *upgrade.Reconciler
}

// automatic is a spec with automatic upgrades, one node at a time.
func automatic() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
		AutoUpgrade: new(true), PodDeletion: &v1.PodDeletionSpec{Force: new(true)},
	}}}
}

// newFixture returns a fleet of nodes whose driver is up to date.
func newFixture(ctx context.Context, spec v1.ClusterPolicySpec, nodes ...string) *fixture {
	GinkgoHelper()
	direct, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return newFixtureOn(ctx, direct, spec, nodes...)
}

// newFakeFixture is newFixture on a fake API server, for upgrades that are repeated many times. It checks resource
// versions, and its creation times are those of the fixture's clock.
func newFakeFixture(ctx context.Context, spec v1.ClusterPolicySpec, nodes ...string) *fixture {
	GinkgoHelper()
	var created atomic.Int64
	return newFixtureOn(ctx, fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).
		WithIndex(&corev1.Pod{}, "metadata.name", func(pod client.Object) []string { return []string{pod.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(
			ctx context.Context, base client.WithWatch, object client.Object, options ...client.CreateOption,
		) error {
			object.SetUID(types.UID(fmt.Sprint("uid-", created.Add(1))))
			return base.Create(ctx, object, options...)
		}}).Build(), spec, nodes...)
}

func newFixtureOn(
	ctx context.Context, direct client.WithWatch, spec v1.ClusterPolicySpec, nodes ...string,
) *fixture {
	GinkgoHelper()
	f := &fixture{
		client: direct, fleet: fleet.New(), spec: spec, target: "old", nodes: nodes,
		clock:  clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second).Add(time.Second)),
		refuse: func(string, client.Object, []byte) error { return nil },
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

// newManager returns another manager of the fleet.
func (f *fixture) newManager() *manager {
	recorded := newCalls()
	c := recorded.wrap(f.protected())
	return &manager{calls: recorded, reconciler: upgrade.New(upgrade.Options{
		Client: c, Live: c, Catalogue: catalogue, Namespace: cluster.OperatorNamespace, Fleet: f.fleet, Clock: f.clock,
		Events: events.NewRecorder(c, f.clock, func(string) {}), Timing: upgrade.DefaultTiming(),
	})}
}

// protected is the client of the managers, whose evictions are rejected while the fixture is blocked, and whose other
// writes are refused as the fixture says. Like the caches of the operator, it has only pods with the operator's label
// by node.
func (f *fixture) protected() client.WithWatch {
	return interceptor.NewClient(f.client, interceptor.Funcs{
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			selected := client.ListOptions{}
			selected.ApplyOptions(options)
			if selected.Namespace != "" && selected.FieldSelector != nil {
				if _, byNode := selected.FieldSelector.RequiresExactMatch(observe.PodNodeField); byNode {
					options = append(options, client.MatchingLabels{labels.ManagedBy: labels.ManagedByValue})
				}
			}
			return base.List(ctx, list, options...)
		},
		SubResourceCreate: func(
			ctx context.Context, base client.Client, sub string, object, body client.Object,
			options ...client.SubResourceCreateOption,
		) error {
			if f.blocked.Load() {
				return rejectedEviction()
			}
			if err := f.refuse("evict", object, nil); err != nil {
				return err
			}
			return base.SubResource(sub).Create(ctx, object, body, options...)
		},
		Create: func(ctx context.Context, base client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := f.refuse("create", object, nil); err != nil {
				return err
			}
			return base.Create(ctx, object, options...)
		},
		Delete: func(ctx context.Context, base client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := f.refuse("delete", object, nil); err != nil {
				return err
			}
			return base.Delete(ctx, object, options...)
		},
		Patch: func(
			ctx context.Context, base client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			content, err := patch.Data(object)
			Expect(err).NotTo(HaveOccurred())
			if err := f.refuse("patch", object, content); err != nil {
				return err
			}
			return base.Patch(ctx, object, patch, options...)
		},
	})
}

// rejectedEviction is the answer to an eviction that a PodDisruptionBudget does not allow.
func rejectedEviction() error {
	rejected := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	rejected.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    policyv1.DisruptionBudgetCause,
		Message: "The disruption budget train needs 1 healthy pods and has 1 currently",
	}}
	return rejected
}

func (f *fixture) addNode(ctx context.Context, name string) {
	GinkgoHelper()
	gpus := corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")}
	Expect(f.client.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
			labels.Pool: pool, labels.DriverAnchor: pool, labels.DeployPrefix + driver: labels.True,
		}},
	})).To(Succeed())
	f.updateStatus(ctx, name, func(status *corev1.NodeStatus) {
		status.NodeInfo = corev1.NodeSystemInfo{
			Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1", BootID: "boot",
		}
		status.Capacity, status.Allocatable = gpus, gpus
		status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
}

// daemonSet is that of the driver.
func (f *fixture) daemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "nvidia-driver-daemonset", UID: "daemonset", Labels: map[string]string{labels.Operand: driver},
			Annotations: map[string]string{labels.TemplateDigest: f.target},
		},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.Pool: pool}},
			Spec: corev1.PodSpec{
				ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
				InitContainers:   []corev1.Container{{Name: "k8s-driver-manager", Image: "example.com/manager:1"}},
				Containers: []corev1.Container{
					{Name: "nvidia-driver-ctr", Image: "example.com/driver:" + f.target, ImagePullPolicy: corev1.PullIfNotPresent},
					{Name: "nvidia-peermem-ctr", Image: "example.com/driver:" + f.target},
				},
			},
		}},
	}
}

// basis returns the Basis of the spec.
func (f *fixture) basis() fleet.Basis {
	if f.deleted {
		return fleet.Basis{}
	}
	in := operand.Input{
		Spec: effective.Of(f.spec), Namespace: cluster.OperatorNamespace, OperatorImage: "example.com/gpu-operator:v1",
	}
	ds := f.daemonSet()
	return fleet.Basis{
		Policy: &v1.ClusterPolicy{Spec: f.spec}, Decisions: plan.Decide(catalogue, in),
		Stack: assess.Stack{DaemonSets: map[string]*appsv1.DaemonSet{ds.Name: ds}},
	}
}

// play plays the controllers of DaemonSets and nodes, and the kubelets, until they have nothing to do, and assesses all
// nodes.
func (f *fixture) play(ctx context.Context) {
	GinkgoHelper()
	f.endPods(ctx)
	basis := f.fleet.Publish(f.basis(), f.clock.Now())
	for _, name := range f.nodes {
		node := f.node(ctx, name)
		f.runPod(ctx, validator, name, "validator")
		f.runPod(ctx, driver, name, f.target)
		f.finishPull(ctx, name)
		facts := observe.Facts(node)
		entry := &fleet.Entry{Facts: facts, BasisVersion: basis.Version, Planned: &fleet.PlannedNode{}}
		if basis.Decisions != nil {
			entry.Planned.NodePlan = basis.Decisions.ForNode(facts)
		}
		entry.Latest.Usable, entry.Latest.NothingOffers = !f.unoffered, f.unoffered
		f.fleet.Set(entry)
	}
}

// runPod creates a ready pod of the operand on the node, unless there is one.
func (f *fixture) runPod(ctx context.Context, name, node, digest string) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + node, Namespace: cluster.OperatorNamespace,
			Labels:      map[string]string{labels.Operand: name, labels.ManagedBy: labels.ManagedByValue},
			Annotations: map[string]string{labels.TemplateDigest: digest},
			// The API server sets its own time.
			CreationTimestamp: metav1.NewTime(f.clock.Now()),
		},
		Spec: podSpec(node, nil),
	}
	if err := f.client.Create(ctx, pod); err != nil {
		Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
		return
	}
	f.setReady(ctx, pod)
}

func podSpec(node string, resources corev1.ResourceList) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
		Name: "main", Image: "example.com/main", Resources: corev1.ResourceRequirements{Limits: resources},
	}}}
}

func (f *fixture) setReady(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}
	Expect(f.client.Status().Update(ctx, pod)).To(Succeed())
}

// endPods removes the pods that are being deleted.
func (f *fixture) endPods(ctx context.Context) {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(f.client.List(ctx, pods)).To(Succeed())
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			f.deletePod(ctx, &pods.Items[i])
		}
	}
}

func (f *fixture) deletePod(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(f.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
}

// finishPull sets the status of the pod that pulls images on the node, if there is one: the images are there, and no
// container has started.
func (f *fixture) finishPull(ctx context.Context, node string) {
	GinkgoHelper()
	if pod := f.pullPod(ctx, node); pod != nil && pod.DeletionTimestamp == nil {
		f.setPull(ctx, pod, corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"},
		})
	}
}

func (f *fixture) setPull(ctx context.Context, pod *corev1.Pod, state corev1.ContainerState) {
	GinkgoHelper()
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodPending, nil
	for i := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: pod.Spec.Containers[i].Name, Image: pod.Spec.Containers[i].Image, State: state,
		})
	}
	Expect(f.client.Status().Update(ctx, pod)).To(Succeed())
}

// pullPod returns the pod that pulls images on the node; nil for none.
func (f *fixture) pullPod(ctx context.Context, node string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: upgrade.PullPodName(node)}
	err := f.client.Get(ctx, key, pod)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return pod
}

// addUser creates a running pod of a user on the node, with this number of GPUs.
func (f *fixture) addUser(ctx context.Context, name, node string, gpus int) {
	GinkgoHelper()
	var resources corev1.ResourceList
	if gpus > 0 {
		resources = corev1.ResourceList{labels.ResourceGPU: resource.MustParse(fmt.Sprint(gpus))}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: users, Labels: map[string]string{"app": name}},
		Spec:       podSpec(node, resources),
	}
	Expect(f.client.Create(ctx, pod)).To(Succeed())
	f.setReady(ctx, pod)
}

// userPods returns the names of the users' pods.
func (f *fixture) userPods(ctx context.Context) []string {
	GinkgoHelper()
	pods, names := &corev1.PodList{}, []string{}
	Expect(f.client.List(ctx, pods, client.InNamespace(users))).To(Succeed())
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names
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

func (f *fixture) updateStatus(ctx context.Context, name string, change func(*corev1.NodeStatus)) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node := f.node(ctx, name)
		change(&node.Status)
		return f.client.Status().Update(ctx, node)
	})).To(Succeed())
}

// pass runs one pass after this time, of the given manager.
func (f *fixture) pass(ctx context.Context, m *manager, after time.Duration) (time.Duration, error) {
	f.clock.SetTime(f.clock.Now().Add(after))
	result, err := m.reconciler.Reconcile(ctx, ctrl.Request{})
	return result.RequeueAfter, err
}

// remove deletes everything of the fixture.
func (f *fixture) remove(ctx context.Context) {
	GinkgoHelper()
	for _, name := range f.nodes {
		Expect(client.IgnoreNotFound(f.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).
			To(Succeed())
	}
	for _, namespace := range []string{users, cluster.OperatorNamespace} {
		Expect(f.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace),
			client.GracePeriodSeconds(0))).To(Succeed())
	}
	Expect(client.IgnoreNotFound(f.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots,
	}}))).To(Succeed())
}
