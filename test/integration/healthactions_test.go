package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	unhealthyTaint   = "nvidia.com/gpu-operator.unhealthy"
	healthRecord     = "nvidia.com/gpu-operator.health-record"
	consentOfUsers   = "nvidia.com/gpu-operator.health-action"
	faultWithoutDate = `{"pci":"0000:1b:00.0","class":"Reset","reason":"NVLinkError","xid":74,"since":%q}`
)

// TestUnhealthyNodesAreTaintedOneAtATime: of three nodes with an unhealthy GPU, one is tainted, and the others are held
// with the reason. No pod is evicted, and no operand is restarted. Users forbid and undo it. A restart of the operator
// changes nothing, and nothing is written at rest. Once the faults have ended nothing is left, nor once the policy is
// deleted while a node is tainted.
func TestUnhealthyNodesAreTaintedOneAtATime(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 4, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	object := e.samplePolicy()
	object.Spec.Health = &v1.HealthSpec{
		Agent:   &v1.HealthAgentSpec{Enabled: new(true)},
		Actions: &v1.HealthActionsSpec{All: v1.HealthActionTaint},
	}
	e.create(object)
	e.awaitReady(4)
	e.Expect(e.daemonSet("nvidia-device-plugin-daemonset").Spec.Template.Spec.Tolerations).To(ContainElement(
		corev1.Toleration{Key: unhealthyTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}))
	nodes := []string{"gpu-00000", "gpu-00001", "gpu-00002", "gpu-00003"}
	users := map[string]*corev1.Pod{}
	for _, node := range nodes {
		users[node] = e.runGPUPod("user-of-"+node, node)
		e.reportsOn(node, "")
	}
	before := e.pods()

	for i, node := range nodes[:3] {
		e.reportsOn(node, fmt.Sprintf(faultWithoutDate, fmt.Sprintf("2026-01-0%dT00:00:00Z", i+1)))
	}
	e.Eventually(e.tainted).WithArguments(nodes).Should(ConsistOf("gpu-00000"))
	e.saysOn("gpu-00000", HaveSuffix("; tainted"))
	for _, node := range nodes[1:3] {
		e.saysOn(node, MatchRegexp("; not tainted: 1 of 1 nodes are acted on already; fault reset-[0-9a-f]{8}$"))
	}
	e.settled()
	e.quietSince("3 s with a tainted node", e.mark(), 3*time.Second)
	e.stop()
	e.run()
	e.quietSince("after a restart of the operator", e.mark(), 3*time.Second)
	e.Expect(e.tainted(nodes)).To(ConsistOf("gpu-00000"))

	// A user forbids it on one node, so that the next one is tainted, and undoes it there.
	e.annotate("gpu-00000", consentOfUsers, "forbid")
	e.Eventually(e.tainted).WithArguments(nodes).Should(ConsistOf("gpu-00001"))
	e.saysOn("gpu-00000", ContainSubstring("; not tainted: the annotation "+consentOfUsers+" forbids it"))
	e.untaint("gpu-00001")
	e.Eventually(e.tainted).WithArguments(nodes).Should(ConsistOf("gpu-00002"))
	e.saysOn("gpu-00001", ContainSubstring("; not tainted: someone has undone it"))
	e.Expect(e.pods()).To(Equal(before), "no operand is restarted")
	for node, pod := range users {
		e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		e.Expect(pod.DeletionTimestamp).To(BeNil(), node)
	}

	for _, node := range nodes[:3] {
		e.reportsOn(node, "")
	}
	e.Eventually(e.tainted).WithArguments(nodes).Should(BeEmpty())
	for _, node := range nodes {
		e.Eventually(func() map[string]string { return e.node(node).Annotations }).ShouldNot(HaveKey(healthRecord), node)
	}
	e.awaitReady(4)

	e.reportsOn("gpu-00003", fmt.Sprintf(faultWithoutDate, "2026-01-04T00:00:00Z"))
	e.Eventually(e.tainted).WithArguments(nodes).Should(ConsistOf("gpu-00003"))
	for _, pod := range users {
		e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
	}
	e.annotate("gpu-00000", consentOfUsers, "")
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.awaitNoPolicy()
	e.expectNothingLeft(nodes...)
	restored()
}

// reportsOn writes the report of the health agent of a node, as the agent does.
func (e *env) reportsOn(node, faults string) {
	e.t.Helper()
	boot := e.node(node).Status.NodeInfo.BootID
	e.annotate(node, healthAnnotation, fmt.Sprintf(`{"boot":%q,"faults":[%s]}`, boot, faults))
}

// annotate sets an annotation of a node; an empty value removes it.
func (e *env) annotate(node, key, value string) {
	e.t.Helper()
	text := fmt.Sprintf("%q", value)
	if value == "" {
		text = "null"
	}
	e.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, key, text))
}

// tainted returns those of the nodes that have the taint of an unhealthy GPU.
func (e *env) tainted(nodes []string) []string {
	e.t.Helper()
	return slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
		return !slices.Contains(e.node(name).Spec.Taints,
			corev1.Taint{Key: unhealthyTaint, Effect: corev1.TaintEffectNoSchedule})
	})
}

// untaint removes the taint from a node, as an admin does.
func (e *env) untaint(node string) {
	e.t.Helper()
	object := e.node(node)
	e.Expect(e.edit(object, func() {
		object.Spec.Taints = slices.DeleteFunc(object.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == unhealthyTaint
		})
	})).To(Succeed())
}

// saysOn waits until the message of the health condition of the node matches.
func (e *env) saysOn(node string, matches OmegaMatcher) {
	e.t.Helper()
	e.Eventually(func() string {
		for _, condition := range e.node(node).Status.Conditions {
			if condition.Type == "nvidia.com/GPUHealthy" {
				return condition.Message
			}
		}
		return ""
	}).Should(matches, node)
}
