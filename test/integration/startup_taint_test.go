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
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	ownTaint      = "nvidia.com/gpu-operator.not-ready"
	scalerTaint   = "startup-taint.cluster-autoscaler.kubernetes.io/gpu"
	startingNode  = "starting"
	startingProbe = "nvidia-operator-validator"
	// taintTime is how soon a start-up taint must be gone once the GPUs can be used.
	taintTime = 2 * time.Second
)

// moment is when something was first seen to be so, and with which version of all objects it came.
type moment struct {
	at      time.Time
	version string
}

// moments are what is seen by watching. The watches may tell out of order, and the versions do not.
type moments struct{ validated, untainted, scheduled moment }

func (m *moment) is(object metav1.Object) {
	if m.version == "" {
		*m = moment{time.Now(), object.GetResourceVersion()}
	}
}

// since is how much later this was seen than the other; it fails if it came to be so before.
func (m *moment) since(b *bed, other moment) time.Duration {
	b.t.Helper()
	order, err := resourceversion.CompareResourceVersion(m.version, other.version)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(order).To(BeNumerically(">", 0), "not before")
	return m.at.Sub(other.at)
}

// TestStartupTaintsKeepPodsOff: a node is created with start-up taints, as an autoscaler does. Operands and node
// discovery come up there; a user's pod waits in the queue of the scheduler, and starts once the GPUs have been
// validated, at once. A node that fails for good is tainted again, and evicts nobody.
func TestStartupTaintsKeepPodsOff(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.3)})
	b.ownTaints(ownTaint, scalerTaint)
	added := metav1.NewTime(time.Now().Add(-time.Hour))
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode, Undiscovered: true, Taints: []corev1.Taint{
		{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: "team", Value: "ml", Effect: corev1.TaintEffectPreferNoSchedule, TimeAdded: &added},
		{Key: scalerTaint, Value: "true", Effect: corev1.TaintEffectNoExecute},
	}})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	object := b.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{PlacementSpec: v1.PlacementSpec{Tolerations: []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}}}
	object.Spec.NodeStartup = &v1.NodeStartupSpec{OnFailure: v1.OnFailureTaint, Taints: []v1.StartupTaint{
		{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: scalerTaint, Effect: corev1.TaintEffectNoExecute},
	}}
	user := gpuPod("queued", "")
	b.create(user)
	seen := b.follow(user.Name)
	mark := b.mark()
	b.create(object)
	b.awaitReady(1)
	var when moments
	b.Eventually(seen).Should(Receive(&when))
	gone, scheduled := when.untainted.since(b, when.validated), when.scheduled.since(b, when.untainted)
	t.Logf("taints gone %s after the node was validated, the queued pod scheduled after another %s", gone.Round(time.Millisecond), scheduled.Round(time.Millisecond))
	b.Expect(gone).To(BeNumerically("<=", taintTime))
	b.Expect(b.taints()).To(Equal([]string{"team:PreferNoSchedule"}), "those of others stay")
	var patches int
	for _, call := range b.operatorCalls(mark).Of("nodes") {
		if call.Subresource == "" && call.Code == 200 {
			patches++
		}
	}
	b.Expect(patches).To(BeNumerically("<=", 3), "two for labels at most, and one for all taints")

	t.Run("a flap changes nothing, and a failure that lasts brings back what evicts nobody", func(t *testing.T) { b.in(t).failsForGood(user) })
	t.Run("the policy goes, and what the operator has put back goes with it", func(t *testing.T) {
		b := b.in(t)
		b.Expect(b.client.Delete(t.Context(), b.policy())).To(Succeed())
		b.Eventually(b.taints).Should(Equal([]string{"team:PreferNoSchedule"}))
		b.Eventually(func() map[string]string { return b.node(startingNode).Annotations }).
			ShouldNot(HaveKey("nvidia.com/gpu-operator.startup-taints"))
	})
}

// failsForGood breaks the driver of the node on which the user's pod runs.
func (b *bed) failsForGood(user *corev1.Pod) {
	failed := func() *corev1.NodeCondition { return nodeCondition(b.node(startingNode)) }
	b.sim.Break("device-plugin", startingNode, simulator.CrashLoop)
	b.deletePod("nvidia-device-plugin-daemonset", startingNode)
	b.Eventually(failed).Should(And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "CrashLoopBackOff")))
	b.Consistently(b.taints).WithTimeout(2*time.Second).Should(Equal([]string{"team:PreferNoSchedule"}), "it may be a flap")
	b.Eventually(b.taints).Should(Equal([]string{"team:PreferNoSchedule", ownTaint + ":NoSchedule"}))
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKeyFromObject(user), user)).To(Succeed())
	b.Expect(user.DeletionTimestamp).To(BeNil(), "nobody is evicted")
	b.Expect(user.Status.Phase).To(Equal(corev1.PodRunning))
}

// TestARefusedTaintIsTold: an installation whose admission policy does not name the start-up taint. The node says
// which key it is and what to do; once that is done, the node is ready.
func TestARefusedTaintIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1), shipped: true})
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode, Taints: []corev1.Taint{{Key: scalerTaint, Effect: corev1.TaintEffectNoSchedule}}})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func() error { return b.fenceHolds() }).WithPolling(100 * time.Millisecond).Should(forbidden("may not change the taints"))
	b.run()
	object := b.samplePolicy()
	object.Spec.NodeStartup = &v1.NodeStartupSpec{Taints: []v1.StartupTaint{{Key: scalerTaint, Effect: corev1.TaintEffectNoSchedule}}}
	b.create(object)
	b.Eventually(func() []v1.NodeStatus { return b.policy().Status.Nodes }).Should(ConsistOf(And(
		HaveField("Ready", false), HaveField("Stage", v1.StageValidated), HaveField("Reason", "StartupTaint"),
		HaveField("Message", HavePrefix("taint "+scalerTaint+" stays: add it to the chart's nodeStartup.taints")))))
	b.Eventually(func() *corev1.NodeCondition { return nodeCondition(b.node(startingNode)) }).Should(And(
		HaveField("Reason", "StartupTaint"), HaveField("Message", ContainSubstring("ownTaints of ValidatingAdmissionPolicy gpu-operator-operator"))))
	b.Expect(b.taints()).To(Equal([]string{scalerTaint + ":NoSchedule"}))
	refused := len(b.operatorCalls(0).Of("nodes").Forbidden())
	b.Expect(refused).To(BeNumerically("<=", 2), "it is not tried again all the time")
	b.ownTaints(ownTaint, scalerTaint)
	b.awaitReady(1)
	b.Expect(b.taints()).To(BeEmpty())
	b.process.judged = b.mark() // What was refused is the story.
}

// fenceHolds asks for what the operator may not do.
func (b *bed) fenceHolds() error {
	cfg, err := b.cluster.ServiceAccountConfig(b.t.Context(), namespace, account)
	if err != nil {
		return err
	}
	return dryRun(b.t, kubernetes.NewForConfigOrDie(cfg), startingNode, nodeChange{patch: `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`})
}

// ownTaints has the API server let the operator change these taints, as the chart does.
func (b *bed) ownTaints(keys ...string) {
	b.t.Helper()
	policies := kubernetes.NewForConfigOrDie(b.cluster.Config).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Get(b.t.Context(), "gpu-operator-operator", metav1.GetOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	list := ""
	for _, key := range keys {
		list += fmt.Sprintf(", '%s'", key)
	}
	policy.Spec.Variables[0] = admissionv1.Variable{Name: "ownTaints", Expression: "[" + list[2:] + "]"}
	_, err = policies.Update(b.t.Context(), policy, metav1.UpdateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
}

// taints are those of the node that starts, as KEY:EFFECT, but for what Kubernetes itself puts there.
func (b *bed) taints() []string {
	b.t.Helper()
	var found []string
	for _, taint := range b.node(startingNode).Spec.Taints {
		found = append(found, taint.Key+":"+string(taint.Effect))
	}
	return found
}

// follow watches the node that starts and its pods, and sends when the last of all has come: the validator is
// ready, the start-up taints are gone, the user's pod is scheduled.
func (b *bed) follow(user string) <-chan moments {
	b.t.Helper()
	admin := kubernetes.NewForConfigOrDie(b.cluster.Config).CoreV1()
	nodes, err := admin.Nodes().Watch(b.t.Context(), metav1.ListOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	pods, err := admin.Pods("").Watch(b.t.Context(), metav1.ListOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(nodes.Stop)
	b.t.Cleanup(pods.Stop)
	seen := make(chan moments, 1)
	go func() {
		var when moments
		for when.validated.version == "" || when.untainted.version == "" || when.scheduled.version == "" {
			select {
			case event := <-nodes.ResultChan():
				when.seeNode(event)
			case event := <-pods.ResultChan():
				when.seePod(event, user)
			case <-b.t.Context().Done():
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
