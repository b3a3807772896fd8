package olm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	validator "github.com/operator-framework/api/pkg/validation/interfaces"
)

const (
	csvFile = "manifests/gpu-operator.clusterserviceversion.yaml"
	crdFile = "manifests/nvidia.com_nvidiadrivers.yaml"
)

// fault is one change that makes a bundle wrong, and what the suites must say of it.
type fault struct {
	name, file string
	// old is replaced by replacement once; the file is removed where both are empty.
	old, replacement string
	// suite and text are those of a finding.
	suite, text string
}

// faults has at least one of each suite that reads what the bundle has; of package manifests and groups it has none.
func faults() []fault {
	return []fault{
		{"a name without a version", csvFile, "name: gpu-operator.v0.0.0-dev", "name: gpu-operator", "good practices",
			"versioning convention"},
		{"a version that is none", csvFile, "\n  version: 0.0.0-dev", "\n  version: x.y", "loader",
			"unable to parse CSV"},
		{"no oldest Kubernetes", csvFile, "\n  minKubeVersion:", "\n  minKube:", "operatorhub v2", "minKubeVersion"},
		{"an oldest Kubernetes that is no version", csvFile, "minKubeVersion: 1.", "minKubeVersion: v1.",
			"operatorhub v2", "csv.Spec.MinKubeVersion has an invalid value"},
		{"a provider without a name", csvFile, "name: The authors of gpu-operator", `name: ""`, "operatorhub v2",
			"csv.Spec.Provider.Name"},
		{"a link that is no address", csvFile,
			"url: https://github.com/clusterpolicy/gpu-operator/blob/main/docs/api.md", "url: docs/api.md",
			"operatorhub v2", "csv.Spec.Links"},
		{"an icon of an unknown type", csvFile, "mediatype: image/svg+xml", "mediatype: image/bmp", "operatorhub v2",
			"csv.Spec.Icon"},
		{"an unknown level of capabilities", csvFile, "capabilities: Basic Install", "capabilities: Everything",
			"capabilities", "is not a valid capabilities level"},
		{"an unknown category", csvFile, "categories: AI/Machine Learning", "categories: Toys", "categories",
			"is not in the set of standard categories"},
		{"no install modes", csvFile, "\n  installModes:", "\n  modes:", "ClusterServiceVersion", "install modes"},
		{"examples that are not JSON", csvFile, "alm-examples: |\n      [", "alm-examples: |\n      [[",
			"ClusterServiceVersion", "invalid example"},
		{"an example of a kind that is not owned", csvFile, `"kind": "NVIDIADriver"`, `"kind": "NVIDIADrivers"`,
			"ClusterServiceVersion", "NVIDIADrivers"},
		{"an owned kind without its definition", crdFile, "", "", "bundle", "not found in bundle"},
		{"a definition of another kind", crdFile, "kind: NVIDIADriver\n", "kind: Driver\n", "bundle", "present in bundle"},
		{"a definition without a served version", crdFile, "storage: true", "storage: false", "definitions", "storage"},
		{"an owned kind without a description", csvFile, "- description: NVIDIADriver",
			"- description: \"\"\n      remark: NVIDIADriver", "good practices", "has an empty description"},
		{"a container without requests", csvFile, "\n                  requests:", "\n                  wishes:",
			"good practices", "unable to find the resource requests"},
		{"a right to create definitions", csvFile,
			"- customresourcedefinitions\n          verbs:\n          - list",
			"- customresourcedefinitions\n          verbs:\n          - create", "good practices",
			"permissions to create CRD"},
		{"a budget that forbids every drain", "manifests/gpu-operator_policy_v1_poddisruptionbudget.yaml",
			"maxUnavailable: 1", "maxUnavailable: 0", "objects", "maxUnavailable field cannot be set to 0"},
		{"a class of every pod", "manifests/gpu-operator-validation_scheduling.k8s.io_v1_priorityclass.yaml",
			"globalDefault: false", "globalDefault: true", "objects", "globalDefault field cannot be set to true"},
		{"an API that Kubernetes removed", "manifests/gpu-operator_policy_v1_poddisruptionbudget.yaml",
			"apiVersion: policy/v1", "apiVersion: policy/v1beta1", "removed APIs", "PodDisruptionBudget"},
		{"an API that OpenShift removed", crdFile, "apiVersion: apiextensions.k8s.io/v1",
			"apiVersion: apiextensions.k8s.io/v1beta1", "community", "v1.22"},
		{"a platform of the image without its label", csvFile, "operatorframework.io/arch.arm64: supported",
			"operatorframework.io/arch.s390x: supported", "architectures", "s390x"},
	}
}

func TestTheSuitesFindFaults(t *testing.T) {
	playRegistry(t)
	rows := append(explained(), explanation{suite: "good practices", warning: `channel(s) ["alpha"]`})
	seen := map[string]bool{}
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			bundle := image(t, filepath.Join(root, "bundle"))
			fault.apply(t, bundle)
			suite := map[string]validator.Validator{}
			if of := suites()[fault.suite]; of != nil {
				suite[fault.suite] = of
			}
			all := validate(t, bundle, filepath.Join(root, "bundle", "bundle.Dockerfile"), suite)
			found, _ := unexplained(all, rows)
			for _, one := range found {
				if one.suite == fault.suite && strings.Contains(one.text, fault.text) {
					seen[fault.suite] = true
					return
				}
			}
			t.Errorf("no finding of %q that has %q, got %v", fault.suite, fault.text, found)
		})
	}
	for suite := range suites() {
		if !seen[suite] && suite != "package manifest" && suite != "operator group" {
			t.Errorf("no fault shows that the suite %q is run", suite)
		}
	}
}

// apply makes the fault in a copy of the bundle.
func (f fault) apply(t *testing.T, bundle string) {
	t.Helper()
	path := filepath.Join(bundle, f.file)
	if f.old == "" {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), f.old) {
		t.Fatalf("%s has no %q", f.file, f.old)
	}
	content = []byte(strings.Replace(string(content), f.old, f.replacement, 1))
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
