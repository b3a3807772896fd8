package integration

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// definitionOf is what of a definition of the Prometheus operator matters here: that its kind is served.
const definitionOf = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: PLURAL.GROUP
  annotations:
    api-approved.kubernetes.io: unapproved, a stand-in for a test
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: KIND, listKind: KINDList, plural: PLURAL, singular: SINGULAR}
  versions:
    - name: VERSION
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const (
	// appearTime is what a user waits for an object after its definition is there, and calmTime how long
	// the operator is watched after a definition has gone.
	appearTime, calmTime = 15 * time.Second, 10 * time.Second
	monitoringGroup      = "monitoring.coreos.com"
)

// wantedMonitoring are the objects that the policy below asks for.
var wantedMonitoring = []string{
	"PrometheusRule gpu-operator-alerts", "PrometheusRule nvidia-node-status-exporter-alerts",
	"ServiceMonitor gpu-operator", "ServiceMonitor nvidia-dcgm-exporter", "ServiceMonitor nvidia-node-status-exporter",
}

// TestMonitoringFollowsThePrometheusOperator: its kinds come and go while the operator runs, and the GPUs
// never depend on them.
func TestMonitoringFollowsThePrometheusOperator(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	object := b.samplePolicy()
	object.Spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true), Interval: "15s"}}
	object.Spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	b.create(object)
	t.Logf("ready without the Prometheus operator after %s", b.awaitReady(1))
	b.operandsReady()
	for _, name := range []string{"gpu-operator", "nvidia-dcgm", "nvidia-dcgm-exporter", "nvidia-node-status-exporter"} {
		b.Expect(b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Service{})).To(Succeed(), name)
	}

	for _, round := range []string{"the Prometheus operator is installed", "it is installed again"} {
		b.defineMonitoring()
		begin := time.Now()
		b.Eventually(b.monitoring).WithTimeout(appearTime).WithPolling(50*time.Millisecond).Should(Equal(wantedMonitoring), round)
		t.Logf("%s: all objects after %s", round, time.Since(begin).Round(10*time.Millisecond))
		b.repairsMonitoring()
		b.undefineMonitoring()
	}
	b.Expect(b.log()).NotTo(ContainSubstring("Reconciler error"), "no pass has failed, not even where a definition was just going")
}

// operandsReady expects the operands that serve metrics to be ready, beside the ladder.
func (b *bed) operandsReady() {
	b.t.Helper()
	b.Eventually(func() map[string]v1.OperandState {
		states := map[string]v1.OperandState{}
		for _, operand := range b.policy().Status.Operands {
			states[operand.Name] = operand.State
		}
		return states
	}).Should(And(
		HaveKeyWithValue("dcgm", v1.OperandReady), HaveKeyWithValue("dcgm-exporter", v1.OperandReady),
		HaveKeyWithValue("node-status-exporter", v1.OperandReady), HaveKeyWithValue("operator-metrics", v1.OperandReady),
	))
}

// repairsMonitoring deletes an object: that it comes back shows that its kind is watched, in each round.
func (b *bed) repairsMonitoring() {
	b.t.Helper()
	b.Expect(b.client.Delete(b.t.Context(), monitoringObject("ServiceMonitor", "nvidia-dcgm-exporter"))).To(Succeed())
	b.Eventually(b.monitoring).WithTimeout(appearTime).WithPolling(50 * time.Millisecond).Should(Equal(wantedMonitoring))
}

// undefineMonitoring takes the kinds away, and expects the operator to notice and then to be calm: no
// failing pass, and no call about a kind that is no more.
func (b *bed) undefineMonitoring() {
	b.t.Helper()
	for _, definition := range monitoringDefinitions(b) {
		b.Expect(b.client.Delete(b.t.Context(), definition)).To(Succeed())
	}
	b.Eventually(func(g Gomega) {
		for _, definition := range monitoringDefinitions(b) {
			err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(definition), definition)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
		g.Expect(strings.Count(b.log(), "Stopped watching an optional kind")).
			To(Equal(strings.Count(b.log(), "Watching an optional kind")))
	}).WithTimeout(appearTime).Should(Succeed())
	b.awaitReady(1)
	mark, before := b.mark(), b.log()
	b.Consistently(func() []string {
		return append(errorsIn(strings.TrimPrefix(b.log(), before)), monitoringCalls(b, mark)...)
	}).WithTimeout(calmTime).WithPolling(time.Second).Should(BeEmpty())
	b.awaitReady(1)
}

// monitoringCalls are the operator's calls since the mark about kinds of the Prometheus operator.
func monitoringCalls(b *bed, mark cluster.Mark) []string {
	var calls []string
	for _, call := range b.operatorCalls(mark) {
		if call.Group == monitoringGroup {
			calls = append(calls, call.String())
		}
	}
	return calls
}

// errorsIn are the lines of errors in the operator's log.
func errorsIn(log string) []string {
	var found []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"level":"error"`) || strings.HasPrefix(line, "E") {
			found = append(found, line)
		}
	}
	return found
}

func (b *bed) log() string {
	b.t.Helper()
	text, err := os.ReadFile(b.process.LogFile)
	b.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// monitoring names the objects of the kinds of the Prometheus operator.
func (b *bed) monitoring() []string {
	var found []string
	for _, kind := range []string{"PrometheusRule", "ServiceMonitor"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: kind + "List"})
		err := b.client.List(b.t.Context(), list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		b.Expect(err).NotTo(HaveOccurred())
		for i := range list.Items {
			found = append(found, kind+" "+list.Items[i].GetName())
		}
	}
	return found
}

func monitoringObject(kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: kind})
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func (b *bed) defineMonitoring() {
	b.t.Helper()
	for _, definition := range monitoringDefinitions(b) {
		b.create(definition)
	}
}

func monitoringDefinitions(b *bed) []*unstructured.Unstructured {
	b.t.Helper()
	var definitions []*unstructured.Unstructured
	for kind, plural := range map[string]string{"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"} {
		definitions = append(definitions, b.definition(monitoringGroup, "v1", kind, plural))
	}
	return definitions
}

// definition defines a kind whose objects may hold anything.
func (b *bed) definition(group, version, kind, plural string) *unstructured.Unstructured {
	b.t.Helper()
	text := strings.NewReplacer("GROUP", group, "VERSION", version, "KIND", kind, "PLURAL", plural, "SINGULAR", strings.ToLower(kind)).Replace(definitionOf)
	definition := &unstructured.Unstructured{}
	b.Expect(yaml.Unmarshal([]byte(text), definition)).To(Succeed())
	return definition
}
