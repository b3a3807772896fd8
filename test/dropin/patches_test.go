package dropin

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// patches are JSON patches of NVIDIA's documentation and of its users.
var patches = []struct{ op, path, value string }{
	{"replace", "/spec/driver/version", `"580.82.07"`},
	{"replace", "/spec/mig/strategy", `"mixed"`},
	{"add", "/spec/devicePlugin/env", `[{"name": "A", "value": "b"}]`},
	{"add", "/spec/devicePlugin/env/-", `{"name": "A", "value": "b"}`},
	{"add", "/spec/devicePlugin/config", `{"name": "time-slicing", "default": "any"}`},
	{"replace", "/spec/dcgm/enabled", `true`},
	{"replace", "/spec/dcgmExporter/enabled", `false`},
	{"replace", "/spec/gfd/enabled", `false`},
	{"replace", "/spec/toolkit/installDir", `"/opt/nvidia"`},
	{"replace", "/spec/daemonsets/labels", `{"a": "b"}`},
	{"add", "/spec/daemonsets/labels", `{"a": "b"}`},
	{"add", "/spec/daemonsets/labels/team", `"hpc"`},
	{"add", "/spec/migManager/config/name", `"layouts"`},
	{"replace", "/spec/migManager/config/name", `"layouts"`},
	{"add", "/spec/cdi/enabled", `false`},
	{"replace", "/spec/cdi/enabled", `false`},
	{"add", "/spec/driver/rdma/enabled", `true`},
	{"replace", "/spec/driver/rdma/enabled", `true`},
	{"add", "/spec/validator/env", `[{"name": "A", "value": "b"}]`},
	{"replace", "/spec/validator/env", `[{"name": "A", "value": "b"}]`},
	// Not in the documentation, but of the same form.
	{"replace", "/spec/driver/enabled", `false`},
	{"replace", "/spec/toolkit/enabled", `false`},
	{"replace", "/spec/migManager/enabled", `false`},
	{"replace", "/spec/nodeStatusExporter/enabled", `true`},
	{"replace", "/spec/gds/enabled", `true`},
	{"replace", "/spec/gdrcopy/enabled", `true`},
	{"replace", "/spec/psa/enabled", `true`},
	{"replace", "/spec/driver/upgradePolicy/autoUpgrade", `false`},
	{"add", "/spec/driver/env/-", `{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}`},
	{"add", "/spec/toolkit/env/-", `{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}`},
	{"add", "/spec/dcgmExporter/env/-", `{"name": "DCGM_EXPORTER_INTERVAL", "value": "10000"}`},
	{"add", "/spec/migManager/env/-", `{"name": "WITH_REBOOT", "value": "true"}`},
	{"add", "/spec/driver/licensingConfig/secretName", `"licence"`},
	{"add", "/spec/driver/virtualTopology/config", `"topology"`},
	{"add", "/spec/driver/upgradePolicy/drain/enable", `true`},
	{"add", "/spec/dcgmExporter/serviceMonitor/enabled", `true`},
	{"add", "/spec/validator/plugin/env", `[{"name": "WITH_WORKLOAD", "value": "false"}]`},
	{"add", "/spec/hostPaths/driverInstallDir", `"/opt/driver"`},
	{"add", "/spec/operator/runtimeClass", `"nvidia"`},
}

// TestPatches applies each JSON patch to the policy of the chart and to the sample, as the API server stores them.
func TestPatches(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t)
	e.install("")
	var rows []row
	for _, policy := range []struct {
		of     string
		object *unstructured.Unstructured
	}{{"chart", e.policy(policyName)}, {"sample", e.stored(sample(e.WithT))}} {
		for _, p := range patches {
			rows = append(rows, row{
				name: policy.of + " " + p.op + " " + p.path, verdict: honoured,
				check: func(e *env) { e.patch(policy.object, p.op, p.path, p.value) },
			})
		}
	}
	e.tryAll(patchLines, rows)
}

// patch applies a JSON patch without storing the result, and checks the value at its path. A strict implementation of
// JSON patches, to which a missing field cannot be replaced, must accept it too, except for what NVIDIA's policies have
// and ours leave to the operator.
func (e *env) patch(policy *unstructured.Unstructured, op, path, value string) {
	e.t.Helper()
	patch := `[{"op": "` + op + `", "path": "` + path + `", "value": ` + value + `}]`
	patched := policy.DeepCopy()
	e.Expect(e.client.Patch(e.t.Context(), patched, client.RawPatch(types.JSONPatchType, []byte(patch)),
		client.DryRunAll)).To(Succeed())
	var want any
	e.Expect(json.Unmarshal([]byte(value), &want)).To(Succeed())
	keys := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if last := len(keys) - 1; keys[last] == "-" {
		e.Expect(field(e.WithT, patched, keys[:last]...)).To(ContainElement(want))
		return
	}
	e.Expect(field(e.WithT, patched, keys...)).To(Equal(want))
	if op == "replace" && path != "/spec/driver/version" {
		e.Expect(field(e.WithT, policy, keys...)).NotTo(BeNil(), "the field is there")
	}
}

// TestPoliciesStayAsTheyAreApplied applies the policy of the chart and the sample twice in each way: the second time
// changes nothing.
func TestPoliciesStayAsTheyAreApplied(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t)
	e.install("operator.upgradeCRD=false")
	before := e.seen(policyName)
	e.helm("upgrade", release, chart, "--set", "operator.upgradeCRD=false")
	e.Expect(e.policy(policyName).GetResourceVersion()).To(Equal(before), "helm upgrade")

	rendered := find(e.WithT, render(t, ""), "ClusterPolicy", policyName)
	for name, object := range map[string]*unstructured.Unstructured{"chart": rendered, "sample": sample(e.WithT)} {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			object.SetName("server-side-" + name)
			e.serverSide(object)
			before := e.seen(object.GetName())
			e.Expect(e.serverSide(object)).To(Equal(before))
			object.SetName("client-side-" + name)
			e.Expect(e.clientSide(object)).To(BeEquivalentTo("{}"))
		})
	}
}

// TestAPatchSurvivesAnUpgrade patches the policy of the chart: helm upgrade neither reverts it nor fails because of it,
// unless the values set the same field.
func TestAPatchSurvivesAnUpgrade(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t)
	e.install("operator.upgradeCRD=false")
	patch := `[{"op": "replace", "path": "/spec/dcgm/enabled", "value": true},
		{"op": "replace", "path": "/spec/toolkit/installDir", "value": "/opt/nvidia"},
		{"op": "add", "path": "/spec/toolkit/env/-", "value": {"name": "A", "value": "b"}}]`
	e.Expect(e.client.Patch(t.Context(), e.policy(policyName), client.RawPatch(types.JSONPatchType, []byte(patch)),
		client.FieldOwner("kubectl-patch"))).To(Succeed())
	patched := e.policy(policyName)
	e.helm("upgrade", release, chart, "--set", "operator.upgradeCRD=false,gfd.enabled=false")
	upgraded := e.policy(policyName)
	e.Expect(field(e.WithT, upgraded, "spec", "gfd", "enabled")).To(BeFalse())
	for _, block := range []string{"dcgm", "toolkit", "driver"} {
		e.Expect(field(e.WithT, upgraded, "spec", block)).To(Equal(field(e.WithT, patched, "spec", block)))
	}
	_, err := e.tryHelm("upgrade", release, chart, "--set", "operator.upgradeCRD=false,dcgm.enabled=false")
	e.Expect(err).To(MatchError(ContainSubstring(`conflict with "kubectl-patch"`)))
}

// serverSide applies an object as kubectl apply --server-side does, and returns its version.
func (e *env) serverSide(object *unstructured.Unstructured) string {
	e.t.Helper()
	applied := object.DeepCopy()
	e.Expect(e.client.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner("kubectl"))).To(Succeed())
	return applied.GetResourceVersion()
}

// seen writes the status of a policy, as the operator does at once, and returns its resource version. Until then the
// status has only defaults, which the API server stores with the next write.
func (e *env) seen(name string) string {
	e.t.Helper()
	policy := e.policy(name)
	e.Expect(e.client.Status().Patch(e.t.Context(), policy,
		client.RawPatch(types.MergePatchType, []byte(`{"status": {"observedGeneration": 1}}`)))).To(Succeed())
	return policy.GetResourceVersion()
}

// clientSide creates an object and returns the patch of a kubectl apply after that.
func (e *env) clientSide(object *unstructured.Unstructured) string {
	e.t.Helper()
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	original, err := json.Marshal(object.Object)
	e.Expect(err).NotTo(HaveOccurred())
	created := object.DeepCopy()
	annotations := created.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[lastApplied] = string(original)
	created.SetAnnotations(annotations)
	modified, err := json.Marshal(created.Object)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Create(e.t.Context(), created)).To(Succeed())
	current, err := json.Marshal(created.Object)
	e.Expect(err).NotTo(HaveOccurred())
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	e.Expect(err).NotTo(HaveOccurred())
	return string(patch)
}

// sample returns the policy of the default sample.
func sample(g *WithT) *unstructured.Unstructured {
	text, err := os.ReadFile(repo + "/config/samples/clusterpolicy.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(string(text))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1))
	return objects[0]
}

// stored creates a policy under another name, and returns what the API server stores.
func (e *env) stored(policy *unstructured.Unstructured) *unstructured.Unstructured {
	e.t.Helper()
	policy.SetName("sample")
	e.Expect(e.client.Create(e.t.Context(), policy)).To(Succeed())
	return e.policy("sample")
}

// policy returns a stored policy.
func (e *env) policy(name string) *unstructured.Unstructured {
	e.t.Helper()
	policy := &unstructured.Unstructured{}
	e.Expect(yaml.Unmarshal([]byte("apiVersion: nvidia.com/v1\nkind: ClusterPolicy"), &policy.Object)).To(Succeed())
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, policy)).To(Succeed())
	return policy
}
