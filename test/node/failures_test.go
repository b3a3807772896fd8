//go:build linux

package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// failure is one line of the table of failures.
type failure struct {
	patient patient
	mode    mode
	// told is how long it took until it was told what fails and why, said what was told; recorded how long until
	// there was an Event of it, with this reason.
	told, recorded time.Duration
	said, reason   string
	// well is how long after the cure all was well, without a hand.
	well time.Duration
	// untold: nobody can know, see mode; done: all was well in the end.
	untold, done bool
}

// round are failures at the same time, of which one at most keeps GPUs from being used.
type round struct {
	patients []patient
	mode     mode
	// again waits until it has failed once more; leave does not wait until all is well.
	again, leave bool
}

func (r round) name() string {
	var names []string
	for _, p := range r.patients {
		names = append(names, p.program)
	}
	return strings.Join(names, ", ") + ": " + r.mode.name
}

// sampleRounds are those of every run, which cost little time. The last one is left to the restart of the node
// that follows: what has failed counts as such for a minute more.
func sampleRounds() []round {
	return []round{
		{patients: []patient{devicePlugin}, mode: hangs},
		{patients: []patient{discovery}, mode: exits, leave: true},
	}
}

// allRounds are all modes of failing for all that is played.
func allRounds() []round {
	var all []round
	for _, patients := range [][]patient{{driverManager}, {driver}, {toolkit}, {devicePlugin}, {discovery, exporter, engine, partitions}} {
		for _, m := range []mode{exits, hangs, slow, memory, missing} {
			all = append(all, round{patients: patients, mode: m, again: m.name == exits.name})
		}
	}
	return all
}

// TestFailures: each failure of each program is told, by the policy and by the node, with operand, container and
// cause, and all is well again once the cause is gone.
func TestFailures(t *testing.T) {
	if !cluster.FullCampaigns() {
		t.Skip("all failures take half an hour: set TEST_FULL=1; TestFromNothingToValidated has some of them")
	}
	b := newBed(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	b.createPolicy(limited())
	b.awaitWell("3m")
	b.checkFailures(allRounds())
}

// crashLoop is what an exit is called that comes again and again.
const crashLoop = "crash loop"

// checkFailures goes through the rounds, and prints the table.
func (b *bed) checkFailures(rounds []round) {
	var table []*failure
	for _, r := range rounds {
		var lines, again []*failure
		for _, p := range r.patients {
			lines = append(lines, &failure{patient: p, mode: r.mode})
			if r.again {
				loop := r.mode
				loop.name = crashLoop
				again = append(again, &failure{patient: p, mode: loop})
			}
		}
		lines = append(lines, again...)
		table = append(table, lines...)
		b.t.Run(r.name(), func(t *testing.T) { b.in(t).checkRound(r, lines) })
	}
	b.t.Log(failureTable(table))
}

func (b *bed) checkRound(r round, lines []*failure) {
	b.awaitWell("4m")
	begin := time.Now()
	cures := b.inflict(r)
	for _, line := range lines {
		if line.mode.name == crashLoop {
			b.awaitRestarts(line.patient, 2)
		}
		b.awaitTold(line, begin)
		b.awaitRecorded(line, begin)
	}
	cured := time.Now()
	for _, cure := range cures {
		cure()
	}
	if r.leave {
		return
	}
	b.awaitWell("4m")
	for _, line := range lines {
		b.awaitWork(line.patient)
	}
	b.t.Logf("all was well %s after the cure", since(cured))
	for _, line := range lines {
		line.well, line.done = since(cured), true
	}
}

// inflict makes the patients of a round fail, and has their pods start anew. What it returns takes the causes
// away.
func (b *bed) inflict(r round) (cures []func()) {
	for _, p := range r.patients {
		cures = append(cures, b.sicken(p, r.mode))
	}
	for _, p := range r.patients {
		b.Expect(b.client.CoreV1().Pods(namespace).DeleteCollection(b.t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: "app=" + p.app})).To(Succeed())
	}
	for _, p := range r.patients {
		if p == toolkit && r.mode.onItsWay {
			b.renewNeeding(p)
		}
	}
	return cures
}

// renewNeeding has the pods of the device plugin start anew where the toolkit has no probe: what it has done holds for
// those that run. As on a node that joins, they come when the former toolkit has taken its handler with it.
func (b *bed) renewNeeding(p patient) {
	b.Eventually(func(g Gomega) { g.Expect(b.container(g, p).State.Running).NotTo(BeNil()) }, "60s", "50ms").Should(Succeed(), b.describe)
	b.Expect(b.client.CoreV1().Pods(namespace).DeleteCollection(b.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "app=" + devicePlugin.app})).To(Succeed())
}

func (b *bed) sicken(p patient, m mode) (cure func()) {
	if m.order != nil {
		b.Expect(b.machine.Order(p.program, m.order)).To(Succeed())
		undo := func() { b.Expect(b.machine.Order(p.program, nil)).To(Succeed()) }
		b.t.Cleanup(undo)
		if m.itself {
			return func() {}
		}
		return undo
	}
	name, err := node.ImageName(p.component)
	b.Expect(err).NotTo(HaveOccurred())
	kept := "example.com/kept:" + string(p.component)
	b.Expect(b.machine.Tag(b.t.Context(), name, kept)).To(Succeed())
	b.Expect(b.machine.Untag(b.t.Context(), name)).To(Succeed())
	undo := func() { b.Expect(b.machine.Tag(context.Background(), kept, name)).To(Succeed()) }
	b.t.Cleanup(undo)
	return undo
}

// awaitTold waits until the policy and the node tell of a failure.
func (b *bed) awaitTold(line *failure, begin time.Time) {
	b.t.Helper()
	p := line.patient
	if line.untold = line.mode.untold(p); line.untold {
		b.Eventually(func(g Gomega) { g.Expect(b.container(g, p).State.Running).NotTo(BeNil()) }, "30s", "100ms").Should(Succeed(), b.describe)
		return
	}
	causes := containAll(append(line.mode.says(p), machineName))
	beside := b.besideLadder(p.operand)
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		condition := b.gpuReady(g)
		if beside {
			g.Expect(policy.Status.State).To(Equal(v1.StateReady))
			g.Expect(meta.IsStatusConditionFalse(policy.Status.Conditions, v1.ConditionAuxiliaryReady)).To(BeTrue())
			g.Expect(condition.Status).To(Equal(corev1.ConditionTrue), condition.Message)
			line.said = operandSays(policy, string(p.operand))
			g.Expect(line.said).To(causes)
			return
		}
		g.Expect(policy.Status.State).To(Equal(v1.StateNotReady))
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse), condition.Message)
		g.Expect(condition.Message).To(And(causes, ContainSubstring("operand "+string(p.operand)+":")))
		line.said = condition.Message
		g.Expect(policy.Status.Nodes).To(HaveLen(1))
		listed := policy.Status.Nodes[0]
		g.Expect(listed.Operand).To(Equal(string(p.operand)))
		g.Expect(listed.Name + " " + listed.Reason + " " + listed.Message).To(causes)
	}, "2m", "100ms").Should(Succeed(), b.describe)
	line.told = since(begin)
	b.t.Logf("%s after %s: %s", line.mode.name, line.told, line.said)
}

func containAll(parts []string) OmegaMatcher {
	var all []OmegaMatcher
	for _, part := range parts {
		all = append(all, ContainSubstring(part))
	}
	return And(all...)
}

func operandSays(policy *v1.ClusterPolicy, name string) string {
	for _, o := range policy.Status.Operands {
		if o.Name == name {
			return fmt.Sprintf("%s: %s", o.Reason, o.Message)
		}
	}
	return ""
}

// gpuReady is the node's condition.
func (b *bed) gpuReady(g Gomega) corev1.NodeCondition {
	object, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, condition := range object.Status.Conditions {
		if condition.Type == gpuReady {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

// container is the state of the patient's container in its new pod.
func (b *bed) container(g Gomega, p patient) corev1.ContainerStatus {
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + p.app})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(HaveLen(1))
	g.Expect(pods.Items[0].DeletionTimestamp).To(BeNil())
	for _, status := range slices.Concat(pods.Items[0].Status.InitContainerStatuses, pods.Items[0].Status.ContainerStatuses) {
		if status.Name == p.container {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// awaitRestarts waits until the kubelet has started the patient's container that often again.
func (b *bed) awaitRestarts(p patient, count int32) {
	b.t.Helper()
	b.Eventually(func(g Gomega) { g.Expect(b.container(g, p).RestartCount).To(BeNumerically(">=", count)) },
		"2m", "200ms").Should(Succeed(), b.describe)
}

// awaitWork waits until the patient says that it works, if it does so.
func (b *bed) awaitWork(p patient) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + p.app})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).To(HaveLen(1))
		log, err := b.client.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Container: p.container}).DoRaw(b.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(log)).To(ContainSubstring(p.works))
	}, "30s", "200ms").Should(Succeed(), b.describe)
}

// awaitWell waits until the policy is ready and each pod of the operands is.
func (b *bed) awaitWell(within string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status.Conditions)
		g.Expect(meta.IsStatusConditionTrue(policy.Status.Conditions, v1.ConditionAuxiliaryReady)).To(BeTrue(), "%+v", policy.Status.Conditions)
		g.Expect(b.gpuReady(g).Status).To(Equal(corev1.ConditionTrue))
	}, within, "100ms").Should(Succeed(), b.describe)
}
