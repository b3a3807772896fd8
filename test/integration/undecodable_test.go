package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// reportTime is how soon an object that cannot be decoded is reported: 10 s, and more beside other tests.
const reportTime = 30 * time.Second

// runWithMetrics starts the operator, and returns when its metrics can be read.
func (e *env) runWithMetrics(address string) {
	e.t.Helper()
	e.run("--metrics-bind-address="+address, "--metrics-secure=false")
	e.Eventually(func() error {
		_, err := scrape(http.DefaultClient, "http://"+address, "")
		return err
	}).WithTimeout(readyTime).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// unbound replaces the definitions by ones without the bounds of numbers and quantities, as earlier ones were.
func (e *env) unbound() {
	e.t.Helper()
	for _, text := range [][]byte{crd.ClusterPolicy, crd.NVIDIADriver} {
		object := &unstructured.Unstructured{}
		e.Expect(yaml.Unmarshal(text, &object.Object)).To(Succeed())
		dropBounds(object.Object)
		content, err := json.Marshal(object.Object)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(e.client.Patch(e.t.Context(), object, client.RawPatch(types.ApplyPatchType, content),
			client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	}
	// The API server serves a changed definition a moment later.
	for _, bad := range []*unstructured.Unstructured{undecodablePolicy("probe"), undecodableDriver("probe")} {
		e.Eventually(func() error {
			return e.client.Create(e.t.Context(), bad.DeepCopy(), client.DryRunAll)
		}).Should(Succeed())
	}
}

func dropBounds(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["x-kubernetes-int-or-string"] == true {
			delete(value, "minimum")
			delete(value, "maximum")
			delete(value, "pattern")
			delete(value, "x-kubernetes-validations")
		}
		for _, inner := range value {
			dropBounds(inner)
		}
	case []any:
		for _, inner := range value {
			dropBounds(inner)
		}
	}
}

func undecodable(kind, version, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion("nvidia.com/" + version)
	object.SetKind(kind)
	object.SetName(name)
	return object
}

// undecodablePolicy has a number of more than 32 bits.
func undecodablePolicy(name string) *unstructured.Unstructured {
	return undecodable("ClusterPolicy", "v1", name, map[string]any{
		"driver": map[string]any{"upgradePolicy": map[string]any{"maxUnavailable": int64(99999999999)}},
	})
}

// undecodableDriver selects the nodes of Rocky Linux, and has a quantity that takes for ever to decode.
func undecodableDriver(name string) *unstructured.Unstructured {
	return undecodable("NVIDIADriver", "v1alpha1", name, map[string]any{
		"nodeSelector": map[string]any{osLabel: "rocky"},
		"resources":    map[string]any{"limits": map[string]any{"cpu": "1e-99999999999"}},
	})
}

// awaitReported waits until an object has the conditions of one that cannot be decoded, for its present generation, and
// an Event that names the field.
func (e *env) awaitReported(object *unstructured.Unstructured, field string) {
	e.t.Helper()
	e.awaitCondition(object, And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Undecodable"),
		HaveField("Message", And(ContainSubstring(field), ContainSubstring("until it is corrected")))))
	e.Eventually(func() ([]corev1.Event, error) {
		events := &corev1.EventList{}
		err := e.client.List(e.t.Context(), events, client.InNamespace(corev1.NamespaceDefault))
		return events.Items, err
	}).WithTimeout(reportTime).Should(ContainElement(And(HaveField("InvolvedObject.Name", object.GetName()),
		HaveField("InvolvedObject.Kind", object.GetKind()), HaveField("Type", corev1.EventTypeWarning),
		HaveField("Reason", "Undecodable"), HaveField("Message", ContainSubstring(field)))))
}

// awaitCondition waits for the condition Ready of an object, for its present generation.
func (e *env) awaitCondition(object *unstructured.Unstructured, ready gomegatypes.GomegaMatcher) {
	e.t.Helper()
	e.Eventually(func() (metav1.Condition, error) {
		err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(object), object)
		status := struct {
			ObservedGeneration int64
			Conditions         []metav1.Condition
		}{}
		content, _ := json.Marshal(object.Object["status"])
		if err == nil {
			err = json.Unmarshal(content, &status)
		}
		for _, condition := range status.Conditions {
			if condition.Type == "Ready" && condition.ObservedGeneration == object.GetGeneration() &&
				status.ObservedGeneration == object.GetGeneration() {
				return condition, err
			}
		}
		return metav1.Condition{}, err
	}).WithTimeout(reportTime).WithPolling(100 * time.Millisecond).Should(ready)
}

// patchSpec changes an object as kubectl patch does, which decodes nothing.
func (e *env) patchSpec(object *unstructured.Unstructured, patch string) {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// awaitMetric waits for a line of the operator's metrics.
func (e *env) awaitMetric(address, line string) {
	e.t.Helper()
	e.Eventually(func() (string, error) {
		found, err := scrape(http.DefaultClient, "http://"+address, "")
		return found.Body, err
	}).WithTimeout(reportTime).WithPolling(100 * time.Millisecond).Should(ContainSubstring("\n" + line + "\n"))
}

// raw is the sample policy as the API server has it.
func raw() *unstructured.Unstructured { return undecodable("ClusterPolicy", "v1", policy, nil) }

const undecodablePolicies = `gpu_operator_undecodable_objects{kind="ClusterPolicy"} `

// TestUndecodablePolicies: a definition without bounds admits policies that Go cannot decode, or not in time. Each is
// reported, the others are reconciled, and edits are observed; what is installed stays, also after a restart.
func TestUndecodablePolicies(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.unbound()
	address := freeAddress(t)

	older := undecodablePolicy("a-older")
	e.create(older.DeepCopy())
	e.runWithMetrics(address)
	e.awaitReported(older, "spec.driver.upgradePolicy.maxUnavailable is 99999999999")
	e.awaitMetric(address, undecodablePolicies+"1")

	e.create(e.samplePolicy())
	e.awaitReady(2)
	e.awaitReported(older, "spec.driver.upgradePolicy.maxUnavailable is 99999999999")
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.DaemonSets = &v1.DaemonSetsSpec{Labels: v1.Labels{"a": "b"}} })
	e.awaitReady(2)
	e.correctOlder(older)
	e.awaitMetric(address, undecodablePolicies+"0")
	e.Expect(client.IgnoreNotFound(e.client.Delete(e.t.Context(), older))).To(Succeed())

	other := undecodablePolicy("other")
	e.create(other.DeepCopy())
	e.awaitReported(other, "spec.driver.upgradePolicy.maxUnavailable is 99999999999")
	e.pluginNames("ClusterPolicy other cannot be decoded: spec.driver.upgradePolicy.maxUnavailable is 99999999999")
	e.patchSpec(other, `{"spec":{"driver":null}}`)
	e.awaitCondition(other, HaveField("Reason", "Ignored"))
	e.awaitMetric(address, undecodablePolicies+"0")

	e.settled()
	daemonSets, pods := e.stack()
	e.patchSpec(raw(), `{"spec":{"toolkit":{"resources":{"limits":{"cpu":"1e-99999999999"}}}}}`)
	e.awaitReported(raw(), "spec.toolkit.resources.limits[cpu]")
	e.awaitMetric(address, "gpu_operator_frozen 1")
	e.patchSpec(other, `{"spec":{"gfd":{"enabled":false}}}`)
	e.awaitCondition(other, HaveField("Reason", "Ignored"))
	e.settled()
	e.stop()
	e.runWithMetrics(address)
	e.patchSpec(raw(), `{"spec":{"toolkit":null,"daemonsets":{"rollingUpdate":{"maxUnavailable":2147483648}}}}`)
	e.awaitReported(raw(), "spec.daemonsets.rollingUpdate.maxUnavailable is 2147483648")
	e.settled()
	nowSets, nowPods := e.stack()
	e.Expect(nowSets).To(Equal(daemonSets), "what is installed")
	e.Expect(nowPods).To(Equal(pods), "what is installed")

	e.patchSpec(raw(), `{"spec":{"daemonsets":{"rollingUpdate":null}}}`)
	e.awaitReady(2)
	e.awaitMetric(address, undecodablePolicies+"0")
	e.awaitMetric(address, "gpu_operator_frozen 0")
}

// pluginNames: each command of the plugin that shows the state of the cluster also says this.
func (e *env) pluginNames(undecodable string) {
	e.t.Helper()
	node, pod := "gpu-00000", e.podOn(pluginName, "gpu-00000").Name
	for _, args := range [][]string{
		{"status"}, {"explain", "node/" + node}, {"explain", "pod/" + pod, "--namespace", namespace},
		{"top", "nodes"}, {"top", "pods"},
	} {
		cmd, printed := e.pluginCommand(args...), &strings.Builder{}
		cmd.Stderr = printed
		// The simulated exporters answer no one, so that top fails.
		_ = cmd.Run()
		e.Expect(printed.String()).To(ContainSubstring(undecodable), "%v", args)
	}
}

// correctOlder corrects a policy that is older than the active one, and was never active: it stays ignored, and what is
// installed stays with its owner, as do the labels of nodes.
func (e *env) correctOlder(older *unstructured.Unstructured) {
	e.t.Helper()
	e.settled()
	daemonSets, pods := e.stack()
	owners, nodeLabels := e.owners(), e.nodeLabels()
	e.Expect(owners).To(HaveEach(e.policy().UID))
	e.patchSpec(older, `{"spec":{"driver":null,"gfd":{"enabled":false}}}`)
	e.awaitCondition(older, And(HaveField("Reason", "Ignored"),
		HaveField("Message", ContainSubstring("ClusterPolicy "+policy+" is active"))))
	e.settled()
	nowSets, nowPods := e.stack()
	e.Expect(nowSets).To(Equal(daemonSets))
	e.Expect(nowPods).To(Equal(pods))
	e.Expect(e.owners()).To(Equal(owners))
	e.Expect(e.nodeLabels()).To(Equal(nodeLabels))
	e.awaitReady(2)
}

// owners returns the UIDs of the controllers of the DaemonSets.
func (e *env) owners() map[string]types.UID {
	e.t.Helper()
	sets, found := &appsv1.DaemonSetList{}, map[string]types.UID{}
	e.Expect(e.client.List(e.t.Context(), sets, client.InNamespace(namespace))).To(Succeed())
	for i := range sets.Items {
		found[sets.Items[i].Name] = metav1.GetControllerOf(&sets.Items[i]).UID
	}
	return found
}

// nodeLabels returns the labels of all nodes, by node.
func (e *env) nodeLabels() map[string]map[string]string {
	e.t.Helper()
	nodes, found := &corev1.NodeList{}, map[string]map[string]string{}
	e.Expect(e.client.List(e.t.Context(), nodes)).To(Succeed())
	for i := range nodes.Items {
		found[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	return found
}

// TestUndecodableNVIDIADrivers: the same for the drivers of some nodes. The nodes of the other one get theirs.
func TestUndecodableNVIDIADrivers(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := twoSystems(t)
	e.unbound()
	address := freeAddress(t)
	e.create(nvidiaDriver("on-ubuntu", "ubuntu"))
	bad := undecodableDriver("on-rocky")
	e.create(bad.DeepCopy())
	e.runWithMetrics(address)
	sample := e.samplePolicy()
	sample.Spec.Driver = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}
	e.create(sample)
	e.awaitReported(bad, "spec.resources.limits[cpu]")
	e.awaitMetric(address, `gpu_operator_undecodable_objects{kind="NVIDIADriver"} 1`)
	e.awaitDriver("on-ubuntu", v1alpha1.StateReady, v1.ReasonReconciled, Not(BeEmpty()))
	e.Eventually(func() string { return e.messages()["rocky"] }).WithTimeout(readyTime).
		Should(ContainSubstring("spec.resources.limits[cpu]"))
	e.patchSpec(bad, `{"spec":{"resources":null}}`)
	e.awaitDriver("on-rocky", v1alpha1.StateReady, v1.ReasonReconciled, Not(BeEmpty()))
	e.awaitReady(2)
	e.settled()
	daemonSets, pods := e.stack()
	drivers := e.podsOf("driver")
	e.Expect(drivers).To(And(HaveKey("driver on rocky"), HaveKey("driver on ubuntu")))

	e.patchSpec(bad, `{"spec":{"upgradePolicy":{"maxUnavailable":99999999999}}}`)
	e.awaitReported(bad, "spec.upgradePolicy.maxUnavailable is 99999999999")
	unchanged := func(when string) {
		e.settled()
		nowSets, nowPods := e.stack()
		e.Expect(nowSets).To(Equal(daemonSets), when)
		e.Expect(nowPods).To(Equal(pods), when)
		e.Expect(e.podsOf("driver")).To(Equal(drivers), when)
	}
	unchanged("while it cannot be decoded")
	e.stop()
	e.runWithMetrics(address)
	e.awaitMetric(address, `gpu_operator_undecodable_objects{kind="NVIDIADriver"} 1`)
	unchanged("after a restart")
	e.patchSpec(bad, `{"spec":{"upgradePolicy":null}}`)
	e.awaitDriver("on-rocky", v1alpha1.StateReady, v1.ReasonReconciled, Not(BeEmpty()))
	e.awaitReady(2)
	unchanged("once it is corrected")
	e.Expect(strings.Count(e.messages()["ubuntu"], "decoded")).To(BeZero())
}
