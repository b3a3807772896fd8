package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	ownTaint      = "nvidia.com/gpu-operator.not-ready"
	scalerTaint   = "startup-taint.cluster-autoscaler.kubernetes.io/gpu"
	startingNode  = "starting"
	startingProbe = "nvidia-operator-validator"
	// taintTime is how soon a startup taint must be removed once the GPUs can be used; mostly it takes less than 2 s.
	taintTime = 10 * time.Second
)

// moment is the time and the resourceVersion at which something was first observed.
type moment struct {
	at      time.Time
	version string
}

// moments are observed by watches. Watches may deliver out of order, but the resourceVersions are ordered.
type moments struct{ validated, untainted, scheduled moment }

func (m *moment) is(object metav1.Object) {
	if m.version == "" {
		*m = moment{time.Now(), object.GetResourceVersion()}
	}
}

// since returns how much later this was observed than the other; it fails if it happened before.
func (m *moment) since(e *env, other moment) time.Duration {
	e.t.Helper()
	order, err := resourceversion.CompareResourceVersion(m.version, other.version)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(order).To(BeNumerically(">", 0), "not before")
	return m.at.Sub(other.at)
}

// TestStartupTaintsKeepPodsOff: a node is created with startup taints, as by an autoscaler. Operands and node
// discovery run there; a user's pod waits in the scheduler's queue, and starts immediately once the GPUs have been
// validated. A node that fails permanently is tainted again, without evicting pods.
func TestStartupTaintsKeepPodsOff(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.3)})
	e.ownTaints(ownTaint, scalerTaint)
	added := metav1.NewTime(time.Now().Add(-time.Hour))
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode, Undiscovered: true, Taints: []corev1.Taint{
		{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule}, {
			Key: "team", Value: "ml", Effect: corev1.TaintEffectPreferNoSchedule, TimeAdded: &added,
		},
		{Key: scalerTaint, Value: "true", Effect: corev1.TaintEffectNoExecute},
	}})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{PlacementSpec: v1.PlacementSpec{
		Tolerations: []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}},
	}}
	object.Spec.NodeStartup = &v1.NodeStartupSpec{OnFailure: v1.OnFailureTaint, Taints: []v1.StartupTaint{
		{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: scalerTaint, Effect: corev1.TaintEffectNoExecute},
	}}
	user := gpuPod("queued", "")
	e.create(user)
	seen := e.follow(user.Name)
	mark := e.mark()
	e.create(object)
	e.awaitReady(1)
	var when moments
	e.Eventually(seen).Should(Receive(&when))
	gone, scheduled := when.untainted.since(e, when.validated), when.scheduled.since(e, when.untainted)
	t.Logf("taints gone %s after the node was validated, the queued pod scheduled after another %s",
		gone.Round(time.Millisecond), scheduled.Round(time.Millisecond))
	if cluster.FullCampaigns() { // Other work on the machine prolongs it.
		e.Expect(gone).To(BeNumerically("<=", taintTime))
	}
	e.Expect(e.taints()).To(Equal([]string{"team:PreferNoSchedule"}), "other taints stay")
	var patches int
	for _, call := range e.operatorCalls(mark).Of("nodes") {
		if call.Subresource == "" && call.Code == 200 {
			patches++
		}
	}
	e.Expect(patches).To(BeNumerically("<=", 3), "two for labels at most, and one for all taints")

	t.Run("a flap changes nothing, and a permanent failure restores the taint that does not evict",
		func(t *testing.T) { e.in(t).failsPermanently(user) })
	t.Run("the taint that the operator restored is removed with the policy", func(t *testing.T) {
		e := e.in(t)
		// The user's pod uses the GPUs of the node.
		e.respec(func(spec *v1.ClusterPolicySpec) { spec.Removal = &v1.RemovalSpec{Force: new(true)} })
		e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
		e.Eventually(e.taints).Should(Equal([]string{"team:PreferNoSchedule"}))
		e.Eventually(func() map[string]string { return e.node(startingNode).Annotations }).
			ShouldNot(HaveKey("nvidia.com/gpu-operator.startup-taints"))
	})
}

// failsPermanently breaks the driver of the node on which the user's pod runs.
func (e *env) failsPermanently(user *corev1.Pod) {
	failed := func() *corev1.NodeCondition { return nodeCondition(e.node(startingNode)) }
	e.sim.Break("device-plugin", startingNode, simulator.CrashLoop)
	e.deletePod("nvidia-device-plugin-daemonset", startingNode)
	e.Eventually(failed).Should(And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "CrashLoopBackOff")))
	e.Consistently(e.taints).WithTimeout(2*time.Second).Should(Equal([]string{"team:PreferNoSchedule"}),
		"it may be a flap")
	e.Eventually(e.taints).Should(Equal([]string{"team:PreferNoSchedule", ownTaint + ":NoSchedule"}))
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(user), user)).To(Succeed())
	e.Expect(user.DeletionTimestamp).To(BeNil(), "no pod is evicted")
	e.Expect(user.Status.Phase).To(Equal(corev1.PodRunning))
}

// TestRefusedTaintIsReported: the admission policy of an installation does not include the startup taint. The node
// reports the key and the remedy, and is ready once that is done.
func TestRefusedTaintIsReported(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1), shipped: true})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{
		Name: startingNode, Taints: []corev1.Taint{{Key: scalerTaint, Effect: corev1.TaintEffectNoSchedule}},
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.Eventually(func() error {
		return e.fenceHolds()
	}).WithPolling(100 * time.Millisecond).Should(forbidden("may not change the taints"))
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeStartup = &v1.NodeStartupSpec{
		Taints: []v1.StartupTaint{{Key: scalerTaint, Effect: corev1.TaintEffectNoSchedule}},
	}
	e.create(object)
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ConsistOf(And(
		HaveField("Ready", false), HaveField("Stage", v1.StageValidated), HaveField("Reason", "StartupTaint"),
		HaveField("Message", HavePrefix(
			"start-up taint "+scalerTaint+" is still set: add it to the chart's nodeStartup.taints")))))
	e.Eventually(func() *corev1.NodeCondition { return nodeCondition(e.node(startingNode)) }).Should(And(
		HaveField("Reason", "StartupTaint"), HaveField("Message",
			ContainSubstring("ownTaints of ValidatingAdmissionPolicy gpu-operator-operator"))))
	e.Expect(e.taints()).To(Equal([]string{scalerTaint + ":NoSchedule"}))
	refused := len(e.operatorCalls(0).Of("nodes").Forbidden())
	e.Expect(refused).To(BeNumerically("<=", 2), "it is not retried constantly")
	e.ownTaints(ownTaint, scalerTaint)
	e.awaitReady(1)
	e.Expect(e.taints()).To(BeEmpty())
	e.process.judged = e.mark() // This test expects the denied request.
}

// fenceHolds tries what the operator may not do.
func (e *env) fenceHolds() error {
	cfg, err := e.cluster.ServiceAccountConfig(e.t.Context(), namespace, account)
	if err != nil {
		return err
	}
	return dryRun(e.t, kubernetes.NewForConfigOrDie(cfg), startingNode,
		nodeChange{patch: `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`})
}

// ownTaints lets the operator change these taints in the admission policy, as the chart does.
func (e *env) ownTaints(keys ...string) {
	e.t.Helper()
	list := ""
	for _, key := range keys {
		list += fmt.Sprintf(", '%s'", key)
	}
	policies := kubernetes.NewForConfigOrDie(e.cluster.Config).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	// The controller-manager writes its status after the type check.
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		policy, err := policies.Get(e.t.Context(), "gpu-operator-operator", metav1.GetOptions{})
		if err != nil {
			return err
		}
		policy.Spec.Variables[0] = admissionv1.Variable{Name: "ownTaints", Expression: "[" + list[2:] + "]"}
		_, err = policies.Update(e.t.Context(), policy, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
}

// taints returns those of the starting node, as KEY:EFFECT, without those of Kubernetes itself.
func (e *env) taints() []string {
	e.t.Helper()
	return taintsOf(e.node(startingNode))
}

func taintsOf(node *corev1.Node) []string {
	var found []string
	for _, taint := range node.Spec.Taints {
		found = append(found, taint.Key+":"+string(taint.Effect))
	}
	return found
}

// follow watches the starting node and its pods, and sends when the validator is ready, the startup taints are
// removed and the user's pod is scheduled.
func (e *env) follow(user string) <-chan moments {
	e.t.Helper()
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config).CoreV1()
	nodes, err := admin.Nodes().Watch(e.t.Context(), metav1.ListOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	pods, err := admin.Pods("").Watch(e.t.Context(), metav1.ListOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(nodes.Stop)
	e.t.Cleanup(pods.Stop)
	seen := make(chan moments, 1)
	go func() {
		var when moments
		for when.validated.version == "" || when.untainted.version == "" || when.scheduled.version == "" {
			select {
			case event := <-nodes.ResultChan():
				when.seeNode(event)
			case event := <-pods.ResultChan():
				when.seePod(event, user)
			case <-e.t.Context().Done():
				return
			}
		}
		seen <- when
	}()
	return seen
}

func (m *moments) seeNode(event watch.Event) {
	node, isNode := event.Object.(*corev1.Node)
	if isNode && len(node.Spec.Taints) == 1 {
		m.untainted.is(node)
	}
}

func (m *moments) seePod(event watch.Event, user string) {
	pod, isPod := event.Object.(*corev1.Pod)
	switch {
	case !isPod:
	case pod.Labels["app"] == startingProbe && podReady(pod):
		m.validated.is(pod)
	case pod.Name == user && pod.Spec.NodeName != "":
		m.scheduled.is(pod)
	}
}
