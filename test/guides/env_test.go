package guides

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	namespace = cluster.OperatorNamespace
	account   = "gpu-operator"
	repo      = "../.."
	// defaultFolder has the kustomization of the operator.
	defaultFolder = repo + "/config/default"
	policy        = "cluster-policy"
	sharing       = "gpu-sharing-config"

	// Time limits for events and for a change of many nodes, on a busy machine.
	eventually = time.Minute
	readyTime  = 3 * time.Minute
)

// Resources and labels that users type.
const (
	wholeGPU     = "nvidia.com/gpu"
	renamedGPU   = "nvidia.com/gpu.shared"
	slice10      = "nvidia.com/mig-1g.10gb"
	slice20      = "nvidia.com/mig-2g.20gb"
	slice40      = "nvidia.com/mig-3g.40gb"
	configLabel  = "nvidia.com/device-plugin.config"
	migLabel     = "nvidia.com/mig.config"
	migState     = "nvidia.com/mig.config.state"
	productLabel = "nvidia.com/gpu.product"
	deployPrefix = "nvidia.com/gpu.deploy."
)

// clusters are lent to the tests.
var clusters = cluster.Pool{Folder: defaultFolder}

// env is a cluster with the operator running.
type env struct {
	*WithT
	t        *testing.T
	cluster  *cluster.Cluster
	sim      *simulator.Simulator
	client   client.Client
	operator *cluster.Operator
	// options are those that the operator is started with.
	options cluster.OperatorOptions
	// begin is where the requests of this test begin: a control plane is lent to several tests, one at a time.
	begin cluster.Mark
}

// in returns the env for a subtest: a failure there ends the subtest.
func (e *env) in(t *testing.T) *env {
	view := *e
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// newEnv starts the control plane with these nodes and the operator.
func newEnv(t *testing.T, nodes []simulator.NodeSpec) *env {
	t.Helper()
	e := newCluster(t, cluster.Options{}, nodes)
	e.startOperator()
	return e
}

// controlPlane returns a control plane on which the operator is installed.
func controlPlane(t *testing.T, opts cluster.Options) *cluster.Cluster {
	t.Helper()
	if len(opts.FeatureGates) > 0 {
		return cluster.StartFor(t, opts, defaultFolder)
	}
	return clusters.Lend(t, opts.Version)
}

// newCluster starts the control plane with these nodes.
func newCluster(t *testing.T, opts cluster.Options, nodes []simulator.NodeSpec) *env {
	t.Helper()
	c, timing := controlPlane(t, opts), simulator.DefaultTiming().Scale(0.1)
	e := &env{
		WithT: NewWithT(t), t: t, cluster: c, begin: c.MarkFor(t), client: cluster.NewClient(t, c.SimulatorConfig),
		sim: simulator.Play(t, simulator.Options{Config: c.SimulatorConfig, Timing: &timing, Seed: 1, Modules: true}),
	}
	for _, spec := range nodes {
		_, err := e.sim.AddNode(t.Context(), spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	return e
}

// startOperator starts the operator, until the end of the test.
func (e *env) startOperator() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 2*time.Minute)
	defer cancel()
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(ctx, namespace, account, "")
	e.Expect(err).NotTo(HaveOccurred())
	e.options = cluster.OperatorOptions{
		Binary: cluster.FastOperator(e.t), Kubeconfig: kubeconfig,
		LogFile: filepath.Join(e.t.TempDir(), "gpu-operator.log"),
	}
	e.operator, err = cluster.StartOperator(ctx, e.options)
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(e.finish)
}

// finish ends the operator, and checks that it had no panic and that no request of it was denied.
func (e *env) finish() {
	e.Expect(e.operator.Stop()).To(Succeed())
	log, err := os.ReadFile(e.operator.LogFile)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(string(log)).NotTo(Or(ContainSubstring("panic"), ContainSubstring("DATA RACE")))
	calls, err := e.cluster.Since(e.begin)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(calls.By(cluster.ServiceAccountUser(namespace, account)).Forbidden().String()).To(BeEmpty(),
		"the shipped permissions must suffice")
}

func (e *env) create(objects ...client.Object) {
	e.t.Helper()
	for _, object := range objects {
		e.Expect(e.client.Create(e.t.Context(), object)).To(Succeed())
	}
}

// createPolicy creates the sample policy with these changes.
func (e *env) createPolicy(change func(spec *v1.ClusterPolicySpec)) {
	e.t.Helper()
	object := cluster.PolicyFor(e.t)
	change(&object.Spec)
	e.create(object)
}

func (e *env) policy() *v1.ClusterPolicy {
	e.t.Helper()
	object := &v1.ClusterPolicy{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
	return object
}

// edit reads an object, changes it and writes it, with a retry on conflict.
func (e *env) edit(object client.Object, change func()) {
	e.t.Helper()
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change()
		return e.client.Update(e.t.Context(), object)
	})).To(Succeed())
}

func (e *env) respec(change func(spec *v1.ClusterPolicySpec)) {
	e.t.Helper()
	object := e.policy()
	e.edit(object, func() { change(&object.Spec) })
}

func (e *env) node(name string) *corev1.Node {
	e.t.Helper()
	node := &corev1.Node{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

// label sets a label of a node as kubectl does; an empty value removes it.
func (e *env) label(node, key, value string) {
	e.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	e.Expect(e.client.Patch(e.t.Context(), e.node(node), client.RawPatch("application/merge-patch+json", []byte(patch)))).
		To(Succeed())
}

// allocatable returns how much of the resources of GPUs a node can give to pods, without those of which it has none.
func (e *env) allocatable(node string) map[string]int64 {
	e.t.Helper()
	found := map[string]int64{}
	for name, quantity := range e.node(node).Status.Allocatable {
		if strings.HasPrefix(string(name), "nvidia.com/") && quantity.Value() > 0 {
			found[string(name)] = quantity.Value()
		}
	}
	return found
}

// expectAllocatable waits until a node offers exactly this.
func (e *env) expectAllocatable(node string, want map[string]int64) {
	e.t.Helper()
	e.Eventually(func() map[string]int64 { return e.allocatable(node) }).WithTimeout(readyTime).
		Should(Equal(want), e.describe(node))
}

// request is a pod that requests devices.
type request struct {
	name      string
	namespace string
	resource  string
	count     int64
	// on is the node that it selects, empty for any; selector are further labels of the node.
	on          string
	selector    map[string]string
	tolerations []corev1.Toleration
}

func (r request) pod() *corev1.Pod {
	selector := map[string]string{}
	for key, value := range r.selector {
		selector[key] = value
	}
	if r.on != "" {
		selector[corev1.LabelHostname] = r.on
	}
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: r.name},
		Spec: corev1.PodSpec{
			NodeSelector: selector, Tolerations: r.tolerations,
			Containers: []corev1.Container{{Name: "main", Image: "example.com/cuda"}},
		},
	}
	if r.namespace != "" {
		object.Namespace = r.namespace
	}
	if r.resource != "" {
		count := resource.NewQuantity(max(r.count, 1), resource.DecimalSI)
		object.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(r.resource): *count}
	}
	return object
}

// createPods creates pods of a kind, which are numbered.
func (e *env) createPods(r request, count int) []*corev1.Pod {
	e.t.Helper()
	var pods []*corev1.Pod
	for i := range count {
		next := r
		next.name = fmt.Sprintf("%s-%d", r.name, i)
		pod := next.pod()
		e.create(pod)
		pods = append(pods, pod)
	}
	return pods
}

// expectRunning waits until all of the pods run.
func (e *env) expectRunning(pods ...*corev1.Pod) {
	e.t.Helper()
	for _, pod := range pods {
		e.Eventually(func(g Gomega) {
			g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%s: %v", pod.Name, pod.Status.Conditions)
		}).Should(Succeed())
	}
}

// expectWaiting waits until the scheduler has found no node for the pod, for a cause.
func (e *env) expectWaiting(pod *corev1.Pod, cause string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodScheduled),
			HaveField("Reason", corev1.PodReasonUnschedulable), HaveField("Message", ContainSubstring(cause)))))
	}).Should(Succeed())
}

// verdict returns what the policy's status says of a node, nil if nothing is wrong with it.
func (e *env) verdict(node string) *v1.NodeStatus {
	for _, status := range e.policy().Status.Nodes {
		if status.Name == node {
			return &status
		}
	}
	return nil
}

// condition returns the condition nvidia.com/GPUReady of a node.
func (e *env) condition(node string) corev1.NodeCondition {
	e.t.Helper()
	for _, condition := range e.node(node).Status.Conditions {
		if condition.Type == "nvidia.com/GPUReady" {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

// expectReady waits until the condition of a node is True, and its operands are ready and none paused.
func (e *env) expectReady(node string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		g.Expect(e.condition(node).Status).To(Equal(corev1.ConditionTrue))
		e.expectOperands(g, node)
	}).WithTimeout(readyTime).Should(Succeed(), e.describe(node))
}

// expectReported waits until a node is not ready for a reason.
func (e *env) expectReported(node, reason string) corev1.NodeCondition {
	e.t.Helper()
	var found corev1.NodeCondition
	e.Eventually(func() corev1.NodeCondition {
		found = e.condition(node)
		return found
	}).WithTimeout(readyTime).Should(And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", reason)),
		e.describe(node))
	return found
}

// expectOperandsBack waits until no operand of a node is paused, and the pods of those that use GPUs are ready.
func (e *env) expectOperandsBack(node string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) { e.expectOperands(g, node) }).WithTimeout(readyTime).Should(Succeed(), e.describe(node))
}

// using are the operands that a change of the MIG layout pauses in this cluster.
var using = []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"}

func (e *env) expectOperands(g Gomega, node string) {
	for key, value := range e.node(node).Labels {
		if strings.HasPrefix(key, deployPrefix) {
			g.Expect(value).NotTo(HavePrefix("paused-"), key)
		}
	}
	pods := e.operandPods(node)
	for _, app := range using {
		g.Expect(pods).To(HaveKeyWithValue(app, HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))), app)
	}
}

// operandPods returns the operands' pods of a node that are not being deleted, by their label app.
func (e *env) operandPods(node string) map[string]*corev1.Pod {
	e.t.Helper()
	list := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	found := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
			found[pod.Labels["app"]] = pod
		}
	}
	return found
}

// awaitDaemonSet waits until the pods of a DaemonSet have its template.
func (e *env) awaitDaemonSet(name string) {
	e.t.Helper()
	ds := &appsv1.DaemonSet{}
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, ds)).To(Succeed())
		g.Expect(ds.Status.ObservedGeneration).To(Equal(ds.Generation))
		g.Expect(ds.Status.UpdatedNumberScheduled).To(Equal(ds.Status.DesiredNumberScheduled))
		g.Expect(ds.Status.NumberReady).To(Equal(ds.Status.DesiredNumberScheduled))
	}).WithTimeout(readyTime).Should(Succeed())
}

// describe returns a function that prints what is known of a node, for a failure.
func (e *env) describe(name string) func() string {
	return func() string {
		node := e.node(name)
		text := &strings.Builder{}
		fmt.Fprintf(text, "verdict %+v\ncondition %+v\nlabels %v\ncapacity %v\nallocatable %v\n", e.verdict(name),
			e.condition(name), node.Labels, node.Status.Capacity, node.Status.Allocatable)
		for app, pod := range e.operandPods(name) {
			fmt.Fprintf(text, "%s %s: %s", app, pod.Name, pod.Status.Phase)
			for _, c := range pod.Status.ContainerStatuses {
				fmt.Fprintf(text, " %s ready %t %+v", c.Name, c.Ready, c.State)
			}
			fmt.Fprintln(text)
		}
		return text.String()
	}
}
