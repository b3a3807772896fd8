package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// outdate replaces the operator's definition by one without a block of the spec.
func (e *env) outdate(block string) {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), definition(), client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/`+block+`"},
			{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"}]`)))).To(Succeed())
}

// renew restores the operator's own definition.
func (e *env) renew() {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), definition(), client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
		client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
}

func definition() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("apiextensions.k8s.io/v1")
	object.SetKind("CustomResourceDefinition")
	object.SetName(crd.Name)
	return object
}

// stack returns what must not change while the definition is outdated: the generations of DaemonSets, and the UIDs of
// pods.
func (e *env) stack() (daemonSets map[string]int64, pods map[string]types.UID) {
	e.t.Helper()
	daemonSets, pods = map[string]int64{}, map[string]types.UID{}
	sets, list := &appsv1.DaemonSetList{}, &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), sets, client.InNamespace(namespace))).To(Succeed())
	for i := range sets.Items {
		daemonSets[sets.Items[i].Name] = sets.Items[i].Generation
	}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		pods[list.Items[i].Name] = list.Items[i].UID
	}
	return daemonSets, pods
}

// outdatedEvents returns the messages of a policy's Events about its definition.
func (e *env) outdatedEvents() []string {
	e.t.Helper()
	list, found := &corev1.EventList{}, []string{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
	for i := range list.Items {
		if event := &list.Items[i]; event.InvolvedObject.Kind == "ClusterPolicy" &&
			event.Type == corev1.EventTypeWarning &&
			event.Reason == v1.ConditionCRDOutdated {
			found = append(found, event.Message)
		}
	}
	return found
}

// TestAnOutdatedDefinitionTruncatesNothing: the operator's definition is replaced by one without a field that the
// policy sets, as by a rollback of a chart. Nothing changes, also not by a restarted operator, and the field still
// exists once the right definition is restored.
func TestAnOutdatedDefinitionTruncatesNothing(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	address := freeAddress(t)
	metric := func(line string) {
		t.Helper()
		e.Eventually(func() bool {
			found, err := scrape(http.DefaultClient, "http://"+address, "")
			return err == nil && strings.Contains(found.Body, "\n"+line+"\n")
		}).WithPolling(100*time.Millisecond).Should(BeTrue(), line)
	}
	run := func() { e.run("--metrics-bind-address="+address, "--metrics-secure=false") }
	run()
	object := e.samplePolicy()
	object.Spec.Global = &v1.GlobalSpec{Registry: "mirror.example.com"}
	e.create(object)
	e.awaitReady(2)
	e.settled()
	daemonSets, pods := e.stack()
	e.Expect(daemonSets).NotTo(BeEmpty())
	e.Expect(pods).NotTo(BeEmpty())
	unchanged := func(when string) {
		t.Helper()
		nowSets, nowPods := e.stack()
		e.Expect(nowSets).To(Equal(daemonSets), when)
		for name, uid := range pods {
			e.Expect(nowPods).To(HaveKeyWithValue(name, uid), when)
		}
	}

	mark := e.mark()
	e.outdate("global")
	e.quietSince("the definition does not have a field that the policy sets", mark, 5*time.Second)
	unchanged("with the old definition")
	e.Expect(e.outdatedEvents()).To(ConsistOf(And(ContainSubstring("spec.global"), ContainSubstring("print-crd"))))
	metric("gpu_operator_frozen 1")
	metric("gpu_operator_definition_missing_fields 1")

	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "joins"})
	e.Expect(err).NotTo(HaveOccurred())
	e.Eventually(e.nodesWithReadyCondition).WithTimeout(readyTime).WithPolling(100*time.Millisecond).Should(Equal(3),
		"a new node is served by the existing objects")
	e.settled()
	calls := e.operatorCalls(mark).Writes()
	e.Expect(calls.Of("nodes")).NotTo(BeEmpty())
	e.Expect(calls).To(HaveEach(HaveField("Resource", "nodes")), "%s", calls)

	e.stop()
	mark = e.mark()
	run()
	metric("gpu_operator_frozen 1")
	e.quietSince("an operator that starts with the old definition", mark, 5*time.Second)
	unchanged("after a start with the old definition")

	e.renew()
	metric("gpu_operator_frozen 0")
	metric("gpu_operator_definition_missing_fields 0")
	e.awaitReady(3)
	e.Expect(e.policy().Spec.Global).To(HaveField("Registry", "mirror.example.com"))
	unchanged("with the right definition")
	e.Expect(e.operatorCalls(mark).Writes().Of("daemonsets").String()).To(BeEmpty())
}

// TestOutdatedDefinitionIsReported: the definition does not have a field that the policy does not set. The policy
// reports that, with the remedy, until the definition is restored.
func TestOutdatedDefinitionIsReported(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.settled()
	mark := e.mark()
	e.outdate("global")
	conditions := func() any { return e.policy().Status.Conditions }
	e.Eventually(conditions).Should(ContainElement(And(HaveField("Type", v1.ConditionCRDOutdated),
		HaveField(
			"Message",
			And(
				ContainSubstring("drops spec.global from ClusterPolicies"),
				ContainSubstring("kubectl apply --server-side"),
			),
		))))
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "joins"})
	e.Expect(err).NotTo(HaveOccurred())
	e.awaitReady(2)
	e.Expect(e.operatorCalls(mark).Writes().Of("daemonsets").String()).To(BeEmpty())
	e.renew()
	e.Eventually(conditions).ShouldNot(ContainElement(HaveField("Type", v1.ConditionCRDOutdated)))
}

// TestAnOutdatedDefinitionInstallsNothing: the operator cannot know which fields a policy lost when it was created,
// such as paused.
func TestAnOutdatedDefinitionInstallsNothing(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.outdate("paused")
	e.run()
	mark := e.mark()
	e.create(e.samplePolicy())
	e.Eventually(e.outdatedEvents).Should(ConsistOf(ContainSubstring("does not have spec.paused")))
	e.quietSince("a policy of an old definition", mark, 3*time.Second)
	e.renew()
	e.awaitReady(1)
}
