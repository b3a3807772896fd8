package specgen_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// poolBegins begins a spec with a node pool.
const poolBegins = `{nodePools: [{name: a, nodeSelector: {a: b}, `

// contexts are the further fields that a field needs to have an effect, by path prefix. The longest match applies,
// merged with those of the enclosing blocks.
var contexts = map[string]string{
	"gds":                                     `{gds: {enabled: true}}`,
	"gdrcopy":                                 `{gdrcopy: {enabled: true}}`,
	"nodeStatusExporter.serviceMonitor":       `{nodeStatusExporter: {serviceMonitor: {enabled: true}}}`,
	"dcgmExporter.serviceMonitor":             `{dcgmExporter: {serviceMonitor: {enabled: true}}}`,
	"dcgmExporter.hpcJobMapping.directory":    `{dcgmExporter: {hpcJobMapping: {enabled: true}}}`,
	"dcgmExporter.podLabelAllowlistRegex":     `{dcgmExporter: {enablePodLabels: true}}`,
	"driver.rdma.useHostMofed":                `{driver: {rdma: {enabled: true}}}`,
	"driver.licensingConfig.nlsEnabled":       `{driver: {licensingConfig: {secretName: licence}}}`,
	"driver.usePrecompiled":                   `{driver: {version: "595"}}`,
	"devicePlugin.config.default":             `{devicePlugin: {config: {name: shared}}}`,
	"nodePools[].devicePlugin.config.default": `{devicePlugin: {config: {name: shared}}}`,
	"nodePools[].driver.usePrecompiled":       `{driver: {version: "595"}}`,
	"sharing.timeSlicing":                     `{sharing: {timeSlicing: {replicas: 3}}}`,
	"nodePools[].sharing.timeSlicing":         poolBegins + `sharing: {timeSlicing: {replicas: 3}}}]}`,
	"sharing.mps":                             `{sharing: {mps: {replicas: 3}}}`,
	"nodePools[].sharing.mps":                 poolBegins + `sharing: {mps: {replicas: 3}}}]}`,
	"devicePlugin.mps":                        `{devicePlugin: {config: {name: shared}}}`,
	"operator.use_ocp_driver_toolkit":         `{}`,
	"global.caBundle.key":                     `{global: {caBundle: {configMapName: certificates}}}`,
	"operator.metrics.serviceMonitor":         `{operator: {metrics: {serviceMonitor: {enabled: true}}}}`,
	"driver.livenessProbe":                    `{driver: {livenessProbe: {periodSeconds: 30}}}`,
	"driver.readinessProbe":                   `{driver: {readinessProbe: {periodSeconds: 30}}}`,
	"sandboxWorkloads.defaultWorkload":        `{sandboxWorkloads: {enabled: true}}`,
	"daemonsets.rollingUpdate":                `{daemonsets: {updateStrategy: RollingUpdate}}`,
	"nodeDiscovery":                           `{nodeDiscovery: {mode: builtin}}`,
	"health.agent":                            `{health: {agent: {enabled: true}}}`,
}

// shownBy are the fields whose effect is not a rendered object, and the tests that cover it.
var shownBy = map[string]string{
	"operator.keepWithoutNodes":   "TestDaemonSetsWithoutGPUNodes",
	"operator.refreshHelpers":     "TestANewReleaseKeepsTheLiveHelperImage",
	"paused":                      "TestExtensions",
	"psa.enabled":                 "TestPodSecurityLabels",
	"deadlines":                   "TestDeadlines",
	"nodeDiscovery.gracePeriod":   "TestMissingDiscoveryLabels",
	"migManager.config.default":   "TestFirstLayouts",
	"nodeStartup.onFailure":       "TestStartupTaints",
	"nodeStartup.cleanFailedPods": "TestRefusedPodsAreCleaned",
	"health.minUsable":            "TestANodeThatHasLostGPUs",
	"health.actions":              "TestUnhealthyNodesAreTaintedOneAtATime",
	"removal.force":               "TestForcedRemoval",
}

// shownByEnd are those covered for all blocks together, by path suffix.
var shownByEnd = map[string]string{
	".containerResources[].name": "TestResourcesOfAnUnknownContainerAreRefused",
}

// deprecated are the fields that are only accepted for old policies, and why. The condition DeprecatedFields reports
// their use.
var deprecated = map[string]string{
	"operator.defaultRuntime":     "each node's runtime is detected",
	"operator.initContainer":      "no init container needs a CUDA image",
	"operator.labels":             "had no effect in NVIDIA's operator either",
	"operator.annotations":        "had no effect in NVIDIA's operator either",
	"driver.useOpenKernelModules": "kernelModuleType took its place",
	"dcgm.hostPort":               "had no effect in NVIDIA's operator either",
	"cdi.default":                 "CDI is the default",
	"psp":                         "Kubernetes no longer has pod security policies",
	"kataManager":                 "NVIDIA's operator only removes it",
}

// waiting are the fields that need a later feature of the operator, and which one.
var waiting = map[string]string{
	"driver.upgradePolicy":    "driver upgrades",
	"sandboxWorkloads.mode":   "VM workloads",
	"vfioManager":             "VM workloads",
	"sandboxDevicePlugin":     "VM workloads",
	"kataSandboxDevicePlugin": "VM workloads",
	"vgpuManager":             "VM workloads",
	"vgpuDeviceManager":       "VM workloads",
	"ccManager":               "VM workloads",
	"validator.vfioPCI":       "VM workloads",
	"validator.vgpuManager":   "VM workloads",
	"validator.vgpuDevices":   "VM workloads",
}

// within returns the entry for the field or an enclosing block.
func within(field string, table map[string]string) (string, bool) {
	for key, value := range table {
		if field == key || strings.HasPrefix(field, key+".") {
			return value, true
		}
	}
	return "", false
}

// shownElsewhere returns the test that covers the field.
func shownElsewhere(field string) (string, bool) {
	for end, test := range shownByEnd {
		if strings.HasSuffix(field, end) {
			return test, true
		}
	}
	return within(field, shownBy)
}

// TestEveryFieldDoesSomething: each field of the spec changes what is rendered or decided, or a named test covers it,
// or it is listed as deprecated or waiting.
func TestEveryFieldDoesSomething(t *testing.T) {
	tests := namesOfTests(t)
	all := fields(t)
	counts, without := map[string]int{}, map[string]string{}
	for _, field := range all {
		name := field.String()
		if _, isDeprecated := within(name, deprecated); isDeprecated {
			counts["deprecated"]++
			continue
		}
		if _, isWaiting := within(name, waiting); isWaiting {
			counts["waiting"]++
			continue
		}
		if test, shown := shownElsewhere(name); shown {
			counts["covered"]++
			if !tests[test] {
				t.Errorf("%s is listed with the test %s, which does not exist", name, test)
			}
			continue
		}
		if hasEffect(t, field, without) {
			counts["covered"]++
			continue
		}
		t.Errorf("%s changes nothing", name)
	}
	t.Logf("covered %d, deprecated %d, waiting %d of %d", counts["covered"], counts["deprecated"], counts["waiting"],
		len(all))
	for _, table := range []map[string]string{deprecated, waiting, shownBy} {
		for path := range table {
			if !slices.ContainsFunc(
				all, func(f specgen.Field) bool { return f.String() == path || strings.HasPrefix(f.String(), path+".") },
			) {
				t.Errorf("the spec has no field %s", path)
			}
		}
	}
}

// A deprecated field is reported when it is set.
func TestDeprecatedFieldsAreReported(t *testing.T) {
	reported := func(spec map[string]any) string {
		policy := &v1.ClusterPolicy{Spec: specOf(t, spec)}
		found := status.Compute(policy, status.Input{Err: errors.New("not observed")})
		return meta.FindStatusCondition(found.Conditions, v1.ConditionDeprecatedFields).Message
	}
	for path := range deprecated {
		spec := map[string]any{}
		for _, field := range fields(t) {
			if values := field.Values(); len(values) > 0 && (field.String() == path || strings.HasPrefix(
				field.String(), path+".",
			)) {
				spec = specgen.Merge(spec, field.Spec(values[0]))
			}
		}
		if message := reported(spec); !strings.Contains(message, "spec."+path) {
			t.Errorf("spec.%s: %q", path, message)
		}
	}
}

// hasEffect reports whether a value of the field changes the outcome of what the field needs. The outcomes of that are
// remembered: many fields need the same.
func hasEffect(t *testing.T, field specgen.Field, without map[string]string) bool {
	t.Helper()
	base := map[string]any{}
	// A field of an operand's block has an effect where the operand is enabled; of its field enabled, either value may.
	block, rest, _ := strings.Cut(field.String(), ".")
	if slices.Contains(specgen.EnableAll(&v1.ClusterPolicySpec{}), block) && rest != "enabled" {
		base[block] = map[string]any{"enabled": true}
	}
	for _, prefix := range slices.Sorted(maps.Keys(contexts)) {
		if field.String() == prefix || strings.HasPrefix(field.String(), prefix+".") {
			base = specgen.Merge(base, decoded(t, contexts[prefix]))
		}
	}
	key := fmt.Sprint(base)
	if _, known := without[key]; !known {
		without[key] = outcome(t, base)
	}
	for _, value := range field.Values() {
		if outcome(t, specgen.Merge(base, field.Spec(value))) != without[key] {
			return true
		}
	}
	return false
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	value := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func specOf(t *testing.T, value map[string]any) v1.ClusterPolicySpec {
	t.Helper()
	spec, err := decodeSpec(value)
	if err != nil {
		t.Fatalf("%v: %v", value, err)
	}
	return spec
}

func decodeSpec(value map[string]any) (v1.ClusterPolicySpec, error) {
	spec := v1.ClusterPolicySpec{}
	text, err := json.Marshal(value)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &spec)
	}
	return spec, err
}

// outcome returns everything that a spec results in for a cluster that needs every operand.
func outcome(t *testing.T, value map[string]any) string {
	t.Helper()
	computed := planned(t, value)
	var all strings.Builder
	for _, step := range computed.Steps {
		fmt.Fprintln(&all, step.Operand.Name, step.Action, step.State, step.Reason, step.Message)
		if step.Action != plan.Apply {
			continue
		}
		objects, err := render.Step(computed, step, render.Owner{Name: "cluster-policy", UID: "1"}, nil)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
		for _, object := range objects {
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&all, string(text))
		}
	}
	for _, facts := range machines {
		node := computed.ForNode(facts)
		fmt.Fprintf(&all, "%+v %+v %+v\n", node.Essential, node.Auxiliary, node.Decision)
		labels := computed.NodeLabels(facts, nil, plan.ReadyPods{Injector: true})
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			fmt.Fprintln(&all, facts.Name, key, *labels[key])
		}
	}
	return all.String()
}

// planned returns the plan of a spec for a cluster that needs every operand and has all objects that are named.
func planned(t *testing.T, value map[string]any) plan.Plan {
	t.Helper()
	catalogue, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	in := operand.Input{
		Spec: effective.Of(
			specOf(t, value),
		), Namespace: "gpu-operator", OperatorImage: "ghcr.io/clusterpolicy/gpu-operator:v1",
		Optional:      map[operand.OptionalKind]bool{operand.ServiceMonitor: true, operand.PrometheusRule: true},
		DriverToolkit: map[string]string{"418.94.202501221327-0": "quay.io/openshift/dtk@sha256:1"},
	}
	in.Contents = catalogue.Assume(in, nil)
	for reference, content := range in.Contents {
		if len(content.Keys) == 0 {
			// Its keys become files, whatever they are.
			in.Contents[reference] = operand.Content{Keys: []string{"file"}, Digest: "1"}
		}
	}
	return plan.Compute(plan.Decide(catalogue, in), in.Optional, machines)
}

// machines are nodes that need every operand: two operating systems, one of them with a driver built by
// OpenShift's driver toolkit.
var machines = []nodeinfo.Facts{
	{
		Labels: map[string]string{"example.com/pool": "own"},
		Name:   "ubuntu", HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer,
		Runtime: nodeinfo.RuntimeContainerd, RuntimeVersion: "2.1.4",
		OSID: "ubuntu", OSVersion: "24.04", Kernel: "6.8.0-60-generic", Architecture: "amd64", MIGCapable: "true",
		MPSCapable: "true",
	},
	{
		// This node has no workload label.
		Name: "unlabelled", HasGPU: true, HasDiscoveryLabels: true,
		Runtime: nodeinfo.RuntimeContainerd, RuntimeVersion: "2.1.4",
		OSID: "ubuntu", OSVersion: "24.04", Kernel: "6.8.0-60-generic", Architecture: "amd64",
	},
	{
		Name: "vm", HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadVMPassthrough,
		Runtime: nodeinfo.RuntimeContainerd, RuntimeVersion: "2.1.4",
		OSID: "ubuntu", OSVersion: "24.04", Kernel: "6.8.0-60-generic", Architecture: "amd64",
	},
	{
		Name: "rhcos", HasGPU: true, HasDiscoveryLabels: true,
		Workload: nodeinfo.WorkloadContainer, Runtime: nodeinfo.RuntimeCRIO,
		RuntimeVersion: "1.34.1",
		OSID:           "rhcos", OSVersion: "4.18", OSTree: "418.94.202501221327-0", Kernel: "5.14.0-427.el9.x86_64",
		Architecture: "amd64", Distribution: "openshift",
	},
}

// namesOfTests returns the names of all tests of the project.
func namesOfTests(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, root := range []string{"../../internal", "..", "../../cmd", "../../api"} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				if name, isTest := strings.CutPrefix(line, "func Test"); isTest {
					name, _, _ = strings.Cut(name, "(")
					found["Test"+name] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
