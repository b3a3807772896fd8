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
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// resumeTime is how soon the operator goes on once the definition is renewed.
const resumeTime = 10 * time.Second

// outdate puts a definition over the operator's that lacks a block of the spec.
func (b *bed) outdate(block string) {
	b.t.Helper()
	b.Expect(b.client.Patch(b.t.Context(), definition(), client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/`+block+`"},
			{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"}]`)))).To(Succeed())
}

// renew puts the operator's own definition back.
func (b *bed) renew() {
	b.t.Helper()
	b.Expect(b.client.Patch(b.t.Context(), definition(), client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
		client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
}

func definition() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("apiextensions.k8s.io/v1")
	object.SetKind("CustomResourceDefinition")
	object.SetName(crd.Name)
	return object
}

// stack is what must not change while the definition is outdated: the DaemonSets by their generation, and the pods by
// their identity.
func (b *bed) stack() (daemonSets map[string]int64, pods map[string]types.UID) {
	b.t.Helper()
	daemonSets, pods = map[string]int64{}, map[string]types.UID{}
	sets, list := &appsv1.DaemonSetList{}, &corev1.PodList{}
	b.Expect(b.client.List(b.t.Context(), sets, client.InNamespace(namespace))).To(Succeed())
	for i := range sets.Items {
		daemonSets[sets.Items[i].Name] = sets.Items[i].Generation
	}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		pods[list.Items[i].Name] = list.Items[i].UID
	}
	return daemonSets, pods
}

// outdatedEvents are the messages of the Events that a policy has for its definition.
func (b *bed) outdatedEvents() []string {
	b.t.Helper()
	list, found := &corev1.EventList{}, []string{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
	for i := range list.Items {
		if e := &list.Items[i]; e.InvolvedObject.Kind == "ClusterPolicy" && e.Type == corev1.EventTypeWarning && e.Reason == v1.ConditionCRDOutdated {
			found = append(found, e.Message)
		}
	}
	return found
}

// TestAnOutdatedDefinitionTruncatesNothing: a definition without a field that the policy sets is put over the operator's,
// as a chart does that is rolled back. Nothing is changed by that, also not by an operator that starts then, and the field
// is still there once the right definition is back.
func TestAnOutdatedDefinitionTruncatesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	address := freeAddress(t)
	metric := func(line string) {
		t.Helper()
		b.Eventually(func() bool {
			found, err := scrape(http.DefaultClient, "http://"+address, "")
			return err == nil && strings.Contains(found.Body, "\n"+line+"\n")
		}).WithTimeout(resumeTime).WithPolling(100*time.Millisecond).Should(BeTrue(), line)
	}
	run := func() { b.run("--metrics-bind-address="+address, "--metrics-secure=false") }
	run()
	object := b.samplePolicy()
	object.Spec.Global = &v1.GlobalSpec{Registry: "mirror.example.com"}
	b.create(object)
	b.awaitReady(2)
	b.settled()
	daemonSets, pods := b.stack()
	b.Expect(daemonSets).NotTo(BeEmpty())
	b.Expect(pods).NotTo(BeEmpty())
	unchanged := func(when string) {
		t.Helper()
		nowSets, nowPods := b.stack()
		b.Expect(nowSets).To(Equal(daemonSets), when)
		for name, uid := range pods {
			b.Expect(nowPods).To(HaveKeyWithValue(name, uid), when)
		}
	}

	mark := b.mark()
	b.outdate("global")
	b.quietSince("the definition lacks a field that the policy sets", mark, 5*time.Second)
	unchanged("with the old definition")
	b.Expect(b.outdatedEvents()).To(ConsistOf(And(ContainSubstring("spec.global"), ContainSubstring("print-crd"))))
	metric("gpu_operator_frozen 1")
	metric("gpu_operator_definition_missing_fields 1")

	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "joins"})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(b.nodesThatSayReady).WithTimeout(readyTime).WithPolling(100*time.Millisecond).Should(Equal(3), "a new node is served by what stands")
	b.settled()
	calls := b.operatorCalls(mark).Writes()
	b.Expect(calls.Of("nodes")).NotTo(BeEmpty())
	b.Expect(calls).To(HaveEach(HaveField("Resource", "nodes")), "%s", calls)

	b.stop()
	mark = b.mark()
	run()
	metric("gpu_operator_frozen 1")
	b.quietSince("an operator that starts with the old definition", mark, 5*time.Second)
	unchanged("after a start with the old definition")

	b.renew()
	metric("gpu_operator_frozen 0")
	metric("gpu_operator_definition_missing_fields 0")
	b.awaitReady(3)
	b.Expect(b.policy().Spec.Global).To(HaveField("Registry", "mirror.example.com"))
	unchanged("with the right definition")
	b.Expect(b.operatorCalls(mark).Writes().Of("daemonsets").String()).To(BeEmpty())
}

// TestAnOutdatedDefinitionIsTold: the definition lacks a field that the policy does not set. The policy says so, with the
// command that cures it, and no longer once the definition is renewed.
func TestAnOutdatedDefinitionIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	b.settled()
	mark := b.mark()
	b.outdate("gdrcopy")
	conditions := func() any { return b.policy().Status.Conditions }
	b.Eventually(conditions).Should(ContainElement(And(HaveField("Type", v1.ConditionCRDOutdated),
		HaveField("Message", And(ContainSubstring("drops spec.gdrcopy from ClusterPolicies"), ContainSubstring("kubectl apply --server-side"))))))
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "joins"})
	b.Expect(err).NotTo(HaveOccurred())
	b.awaitReady(2)
	b.Expect(b.operatorCalls(mark).Writes().Of("daemonsets").String()).To(BeEmpty())
	b.renew()
	b.Eventually(conditions).ShouldNot(ContainElement(HaveField("Type", v1.ConditionCRDOutdated)))
}

// TestAnOutdatedDefinitionInstallsNothing: what a policy was created without, such as that it is paused, nobody knows.
func TestAnOutdatedDefinitionInstallsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.outdate("paused")
	b.run()
	mark := b.mark()
	b.create(b.samplePolicy())
	b.Eventually(b.outdatedEvents).Should(ConsistOf(ContainSubstring("does not have spec.paused")))
	b.quietSince("a policy of an old definition", mark, 3*time.Second)
	b.renew()
	b.awaitReady(1)
}
