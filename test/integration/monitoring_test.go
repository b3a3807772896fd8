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

// definitionOf is a minimal definition of a kind of the Prometheus operator, so that it is served.
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
	// appearTime is how long an object may take after its definition is created, and quietTime how long the operator is
	// watched after a definition is deleted.
	appearTime, quietTime = time.Minute, 10 * time.Second
	monitoringGroup       = "monitoring.coreos.com"
)

// wantedMonitoring are the objects that the policy below specifies.
var wantedMonitoring = []string{
	"PrometheusRule nvidia-gpu-operator-metrics", "PrometheusRule nvidia-node-status-exporter-alerts",
	"ServiceMonitor gpu-operator", "ServiceMonitor nvidia-dcgm-exporter", "ServiceMonitor nvidia-node-status-exporter",
}

// TestMonitoringFollowsThePrometheusOperator: its kinds are created and deleted while the operator runs, and the GPUs
// never depend on them.
func TestMonitoringFollowsThePrometheusOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	object := e.samplePolicy()
	object.Spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{
		ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true), Interval: "15s"},
	}
	object.Spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	e.create(object)
	t.Logf("ready without the Prometheus operator after %s", e.awaitReady(1))
	e.operandsReady()
	for _, name := range []string{"gpu-operator", "nvidia-dcgm", "nvidia-dcgm-exporter", "nvidia-node-status-exporter"} {
		e.Expect(e.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name},
			&corev1.Service{})).To(Succeed(), name)
	}

	for _, round := range []string{"the Prometheus operator is installed", "it is reinstalled"} {
		e.defineMonitoring()
		begin := time.Now()
		e.Eventually(e.monitoring).WithTimeout(appearTime).WithPolling(50*time.Millisecond).Should(Equal(wantedMonitoring),
			round)
		t.Logf("%s: all objects after %s", round, time.Since(begin).Round(10*time.Millisecond))
		e.repairsMonitoring()
		e.undefineMonitoring()
	}
	e.Expect(e.log()).NotTo(ContainSubstring("Reconciler error"),
		"no pass has failed, not even during the deletion of a definition")
}

// operandsReady expects the operands that serve metrics to be ready, which no stage depends on.
func (e *env) operandsReady() {
	e.t.Helper()
	e.Eventually(func() map[string]v1.OperandState {
		states := map[string]v1.OperandState{}
		for _, operand := range e.policy().Status.Operands {
			states[operand.Name] = operand.State
		}
		return states
	}).Should(And(
		HaveKeyWithValue("dcgm", v1.OperandReady), HaveKeyWithValue("dcgm-exporter", v1.OperandReady),
		HaveKeyWithValue("node-status-exporter", v1.OperandReady), HaveKeyWithValue("operator-metrics", v1.OperandReady),
	))
}

// repairsMonitoring deletes an object: it is re-created only if its kind is watched, in each round.
func (e *env) repairsMonitoring() {
	e.t.Helper()
	e.Expect(e.client.Delete(e.t.Context(), monitoringObject("ServiceMonitor", "nvidia-dcgm-exporter"))).To(Succeed())
	e.Eventually(e.monitoring).WithTimeout(appearTime).WithPolling(50 * time.Millisecond).Should(Equal(wantedMonitoring))
}

// undefineMonitoring deletes the kinds, and expects the operator to notice and then to be at rest: no failing pass,
// and no request for a deleted kind.
func (e *env) undefineMonitoring() {
	e.t.Helper()
	for _, definition := range monitoringDefinitions(e) {
		e.Expect(e.client.Delete(e.t.Context(), definition)).To(Succeed())
	}
	e.Eventually(func(g Gomega) {
		for _, definition := range monitoringDefinitions(e) {
			err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(definition), definition)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
		g.Expect(e.monitoringLogs("Stopped watching an optional kind")).To(
			Equal(e.monitoringLogs("Watching an optional kind")))
	}).WithTimeout(appearTime).Should(Succeed())
	e.awaitReady(1)
	mark, before := e.mark(), e.log()
	e.Consistently(func() []string {
		return append(errorsIn(strings.TrimPrefix(e.log(), before)), monitoringCalls(e, mark)...)
	}).WithTimeout(quietTime).WithPolling(time.Second).Should(BeEmpty())
	e.awaitReady(1)
}

// monitoringLogs counts the entries of the operator's log with a message about a kind of the Prometheus operator.
func (e *env) monitoringLogs(message string) int {
	count := 0
	for line := range strings.Lines(e.log()) {
		isMonitoring := strings.Contains(line, `"ServiceMonitor"`) || strings.Contains(line, `"PrometheusRule"`)
		if isMonitoring && strings.Contains(line, message) {
			count++
		}
	}
	return count
}

// monitoringCalls returns the operator's requests since the mark for kinds of the Prometheus operator.
func monitoringCalls(e *env, mark cluster.Mark) []string {
	var calls []string
	for _, call := range e.operatorCalls(mark) {
		if call.Group == monitoringGroup {
			calls = append(calls, call.String())
		}
	}
	return calls
}

// errorsIn returns the errors in the operator's log.
func errorsIn(log string) []string {
	var found []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"level":"error"`) || strings.HasPrefix(line, "E") {
			found = append(found, line)
		}
	}
	return found
}

func (e *env) log() string {
	e.t.Helper()
	text, err := os.ReadFile(e.process.LogFile)
	e.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// monitoring returns the names of the objects of the Prometheus operator's kinds.
func (e *env) monitoring() []string {
	var found []string
	for _, kind := range []string{"PrometheusRule", "ServiceMonitor"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: kind + "List"})
		err := e.client.List(e.t.Context(), list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		e.Expect(err).NotTo(HaveOccurred())
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

func (e *env) defineMonitoring() {
	e.t.Helper()
	for _, definition := range monitoringDefinitions(e) {
		e.create(definition)
	}
}

func monitoringDefinitions(e *env) []*unstructured.Unstructured {
	e.t.Helper()
	var definitions []*unstructured.Unstructured
	for kind, plural := range map[string]string{"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"} {
		definitions = append(definitions, e.definition(monitoringGroup, "v1", kind, plural))
	}
	return definitions
}

// definition returns the definition of a kind without a schema.
func (e *env) definition(group, version, kind, plural string) *unstructured.Unstructured {
	e.t.Helper()
	text := strings.NewReplacer("GROUP", group, "VERSION", version, "KIND", kind, "PLURAL", plural, "SINGULAR",
		strings.ToLower(kind)).Replace(definitionOf)
	definition := &unstructured.Unstructured{}
	e.Expect(yaml.Unmarshal([]byte(text), definition)).To(Succeed())
	return definition
}
