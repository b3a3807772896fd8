package integration

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestVariablesForImages: an operator that is restarted with other default images rolls them out as it does a new
// release's, the driver excepted, and reports the variables that it ignores.
func TestVariablesForImages(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const driver, plugin = "mirror.local/nvidia/driver@sha256:" + digits, "mirror.local:5000/nvidia/k8s-device-plugin"
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)

	e.stop()
	e.runWithVariables("DRIVER_IMAGE="+driver, "DEVICE_PLUGIN_IMAGE="+plugin+":v0.19.0",
		"DCGM_EXPORTER_IMAGE=mirror.local/nvidia/dcgm:4", "VALIDATOR_IMAGE=nvcr.io/nvidia/gpu-operator:v26.7.0")
	e.awaitNodes(
		map[string]string{"gpu-00000": v1.ReasonUpgradePending, "gpu-00001": v1.ReasonUpgradePending},
		time.Minute,
	)
	e.Eventually(e.imagesInUse).Should(And(
		HaveKeyWithValue("driver", driver), HaveKeyWithValue("device-plugin", plugin+":v0.19.0"),
		HaveKeyWithValue("dcgm-exporter", HavePrefix("nvcr.io/nvidia/k8s/dcgm-exporter:")),
		HaveKeyWithValue("operator-validator", ContainSubstring("/clusterpolicy/gpu-operator:")),
	))
	e.Eventually(func() string { return e.policy().Status.NodeSummary.ReadyOfTotal }).Should(Equal("2/2"))
	reported := meta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionUnsupportedFields)
	e.Expect(reported.Message).To(And(ContainSubstring("variable DCGM_EXPORTER_IMAGE is ignored"),
		ContainSubstring("variable VALIDATOR_IMAGE is ignored"), Not(ContainSubstring("DEVICE_PLUGIN_IMAGE"))))

	e.change(`{"devicePlugin":{"version":"v0.18.0"}}`)
	e.Eventually(e.imagesInUse).Should(HaveKeyWithValue("device-plugin", plugin+":v0.18.0"))
}

// runWithVariables starts the operator with further variables in its environment.
func (e *env) runWithVariables(variables ...string) {
	e.t.Helper()
	operator, err := cluster.StartOperator(e.t.Context(), cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: e.kubeconfig, Env: variables, LogFile: filepath.Join(e.logDir, "variables.log"),
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.process.Operator, e.process.log = operator, operator.LogFile
}

// imagesInUse returns the images of the main containers, by operand.
func (e *env) imagesInUse() map[string]string {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	found := map[string]string{}
	for _, ds := range list.Items {
		found[ds.Labels[labels.Operand]] = ds.Spec.Template.Spec.Containers[0].Image
	}
	return found
}
