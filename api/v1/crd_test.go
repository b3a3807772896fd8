package v1_test

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

func readCRD(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(crd.ClusterPolicy, definition); err != nil {
		t.Fatal(err)
	}
	return definition
}

// kubectl apply stores the whole definition in an annotation.
func TestTheCRDCanBeAppliedByKubectl(t *testing.T) {
	definition := map[string]any{}
	if err := yaml.Unmarshal(crd.ClusterPolicy, &definition); err != nil {
		t.Fatal(err)
	}
	size, err := crd.Size(definition)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of %d", size, crd.MaxSize)
	if size > crd.MaxSize {
		t.Errorf("the CRD has %d bytes of JSON, at most %d are allowed", size, crd.MaxSize)
	}
	// Of 262,144 bytes for all annotations, some are left for others.
	const most = 250_000
	if crd.MaxSize > most {
		t.Errorf("MaxSize is %d, kubectl apply needs at most %d", crd.MaxSize, most)
	}
}

// The API server shows a rule without a message as its expression, which a user cannot act upon. The same rule may
// apply to many fields.
func TestEachRuleSaysWhatToChange(t *testing.T) {
	places, different := 0, map[string]bool{}
	walk("", readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
			places++
			different[rule.Rule] = true
			if rule.Message == "" {
				t.Errorf("%s has a rule without a message: %s", path, rule.Rule)
			}
		}
	})
	t.Logf("%d different rules at %d fields", len(different), places)
	if len(different) < 25 {
		t.Errorf("%d different rules are too few: the walk does not reach them", len(different))
	}
}

func TestTheCRDIsThatOfNVIDIAsOperator(t *testing.T) {
	definition := readCRD(t)
	type view struct {
		Group, Kind, Plural, Scope string
		ShortNames, Columns        []string
		Served, Storage, Status    bool
	}
	version := definition.Spec.Versions[0]
	names := definition.Spec.Names
	got := view{
		definition.Spec.Group, names.Kind, names.Plural, string(definition.Spec.Scope), names.ShortNames, nil,
		version.Served, version.Storage, version.Subresources != nil && version.Subresources.Status != nil,
	}
	for _, column := range version.AdditionalPrinterColumns {
		got.Columns = append(got.Columns, column.Name)
	}
	want := view{
		"nvidia.com", "ClusterPolicy", "clusterpolicies", "Cluster", []string{"cp"},
		[]string{"Status", "Ready", "Upgrading", "Reason", "Age"}, true, true, true,
	}
	if diff := cmp.Diff(want, got); diff != "" || version.Name != "v1" || len(definition.Spec.Versions) != 1 {
		t.Errorf("version %s, -want +got:\n%s", version.Name, diff)
	}
}

// ofKubernetes are the fields whose types Kubernetes defines, with its bounds.
var ofKubernetes = []string{
	".spec.*.tolerations", ".spec.*.podSecurityContext", ".status.conditions",
	".limits", ".requests",
}

// Each field is bounded, so that an object cannot grow until the API server refuses it, and so that the API server can
// estimate the cost of the rules.
func TestEveryListAndStringIsBounded(t *testing.T) {
	schema := readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	checked := 0
	walk("", schema, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		checked++
		if missing := missingBound(s); missing != "" {
			t.Errorf("%s is %s", path, missing)
		}
	})
	t.Logf("%d fields are bounded", checked)
	if checked < 100 {
		t.Errorf("checked %d fields only: the walk does not reach them", checked)
	}
}

func missingBound(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time":
		return "a string without maxLength, enum or format"
	case s.Type == "array" && s.MaxItems == nil:
		return "a list without maxItems"
	case s.AdditionalProperties != nil && s.MaxProperties == nil:
		return "a map without maxProperties"
	case s.XIntOrString:
		return missingBoundOfIntOrString(s)
	}
	return ""
}

func missingBoundOfIntOrString(s *apiextensionsv1.JSONSchemaProps) string {
	if s.MaxLength == nil {
		return "a string or number without maxLength"
	}
	if s.Minimum == nil || *s.Minimum < math.MinInt32 || s.Maximum == nil || *s.Maximum > math.MaxInt32 {
		return "a string or number without the bounds of 32 bits, beyond which it cannot be decoded"
	}
	for _, text := range []string{"2147483648", "99999999999"} {
		if !refusesText(s, text) {
			return "a string or number that admits the text " + text + ", which is no number of 32 bits"
		}
	}
	if !refusesText(s, "many") || refusesText(s, "25%") || refusesText(s, "2") {
		return "a string or number that admits other texts than numbers and percentages"
	}
	return ""
}

// textRule finds the regular expression of a rule about a text.
var textRule = regexp.MustCompile(`self\.matches\('([^']+)'\)`)

// refusesText reports whether the pattern, or the first regular expression of a rule, does not match the text.
func refusesText(s *apiextensionsv1.JSONSchemaProps, text string) bool {
	expressions := []string{s.Pattern}
	for _, rule := range s.XValidations {
		if found := textRule.FindStringSubmatch(rule.Rule); found != nil && !strings.Contains(rule.Rule, "!self.matches") {
			expressions = append(expressions, found[1])
		}
	}
	return slices.ContainsFunc(expressions, func(expression string) bool {
		return !regexp.MustCompile(expression).MatchString(text)
	})
}

func isForeign(path string) bool {
	return slices.Contains([]string{".metadata", ".apiVersion", ".kind"}, path) ||
		slices.ContainsFunc(ofKubernetes, func(foreign string) bool {
			matches, _ := filepath.Match(foreign, path)
			return matches || (strings.Count(foreign, ".") == 1 && strings.HasSuffix(path, foreign))
		})
}

// walk visits every schema below this one, except what Kubernetes defines.
func walk(path string, s *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	if isForeign(path) {
		return
	}
	visit(path, s)
	for name, property := range s.Properties {
		walk(path+"."+name, &property, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(path+"[]", s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		walk(path+"{}", s.AdditionalProperties.Schema, visit)
	}
}

// nvidias are the fields of NVIDIA's ClusterPolicy, by their names there. STD stands for the fields that most operands
// have, SM for those of a ServiceMonitor.
const nvidias = `
operator.defaultRuntime operator.runtimeClass operator.initContainer:image operator.labels operator.annotations
operator.metrics.serviceMonitor:SM operator.use_ocp_driver_toolkit
daemonsets.labels daemonsets.annotations daemonsets.tolerations daemonsets.priorityClassName daemonsets.updateStrategy
daemonsets.rollingUpdate.maxUnavailable daemonsets.podSecurityContext
driver:STD driver.usePrecompiled driver.useOpenKernelModules driver.kernelModuleType
driver.startupProbe:probe driver.livenessProbe:probe driver.readinessProbe:probe
driver.rdma.enabled driver.rdma.useHostMofed
driver.manager:image driver.manager.env driver.repoConfig.configMapName driver.certConfig.name
driver.licensingConfig.secretName driver.licensingConfig.configMapName driver.licensingConfig.nlsEnabled
driver.virtualTopology.config driver.kernelModuleConfig.name driver.secretEnv
toolkit:STD toolkit.installDir
devicePlugin:STD devicePlugin.config.name devicePlugin.config.default devicePlugin.mps.root
gfd:STD dcgm:STD dcgm.hostPort
dcgmExporter:STD dcgmExporter.annotations dcgmExporter.config.name dcgmExporter.serviceMonitor:SM
dcgmExporter.service.type dcgmExporter.service.internalTrafficPolicy dcgmExporter.hostPID
dcgmExporter.hpcJobMapping.enabled dcgmExporter.hpcJobMapping.directory
dcgmExporter.enablePodLabels dcgmExporter.enablePodUID dcgmExporter.podLabelAllowlistRegex
migManager:STD migManager.config.name migManager.config.default migManager.gpuClientsConfig.name
nodeStatusExporter:STD
gds.enabled gds:image gds.args gds.env gdrcopy.enabled gdrcopy:image gdrcopy.args gdrcopy.env
validator:image validator.resources validator.args validator.env validator.hostNetwork
validator.driver.env validator.toolkit.env validator.cuda.env validator.plugin.env
mig.strategy cdi.enabled cdi.default cdi.nriPluginEnabled
hostPaths.rootFS hostPaths.driverInstallDir hostPaths.kubeletRootDir psa.enabled psp.enabled
driver.useNvidiaDriverCRD driver.upgradePolicy.autoUpgrade driver.upgradePolicy.maxParallelUpgrades
driver.upgradePolicy.maxUnavailable
driver.upgradePolicy.waitForCompletion.podSelector driver.upgradePolicy.waitForCompletion.timeoutSeconds
driver.upgradePolicy.podDeletion.force driver.upgradePolicy.podDeletion.timeoutSeconds
driver.upgradePolicy.podDeletion.deleteEmptyDir
driver.upgradePolicy.drain.enable driver.upgradePolicy.drain.force driver.upgradePolicy.drain.podSelector
driver.upgradePolicy.drain.timeoutSeconds driver.upgradePolicy.drain.deleteEmptyDir
validator.vfioPCI.env validator.vgpuManager.env validator.vgpuDevices.env
sandboxWorkloads.enabled sandboxWorkloads.defaultWorkload sandboxWorkloads.mode
vfioManager:STD vfioManager.driverManager:image vfioManager.driverManager.env
sandboxDevicePlugin:STD kataSandboxDevicePlugin:STD
vgpuManager:STD vgpuManager.driverManager:image vgpuManager.driverManager.env vgpuManager.kernelModuleConfig.name
vgpuDeviceManager:STD vgpuDeviceManager.config.name vgpuDeviceManager.config.default
ccManager:STD ccManager.defaultMode
kataManager:STD kataManager.config.artifactsDir kataManager.config.runtimeClasses`

// groups are fields that several blocks have.
var groups = map[string]string{
	"image": "repository image version imagePullPolicy imagePullSecrets",
	"STD":   "enabled repository image version imagePullPolicy imagePullSecrets resources args env hostNetwork",
	"probe": "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold",
	"SM":    "enabled interval scrapeTimeout honorLabels additionalLabels relabelings",
}

// A policy written for NVIDIA's operator keeps its meaning only if the names are the same.
func TestTheFieldsHaveNVIDIAsNames(t *testing.T) {
	spec := readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	known := map[string]bool{}
	walk("", &spec, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for name := range s.Properties {
			known[strings.TrimPrefix(path+"."+name, ".")] = true
		}
	})
	for word := range strings.FieldsSeq(nvidias) {
		path, group, grouped := strings.Cut(word, ":")
		paths := []string{path}
		if grouped {
			paths = nil
			for key := range strings.FieldsSeq(groups[group]) {
				paths = append(paths, path+"."+key)
			}
		}
		for _, path := range paths {
			if !known[path] {
				t.Errorf("the CRD has no spec.%s", path)
			}
		}
	}
	for _, key := range []string{"sourceLabels", "separator", "targetLabel", "regex", "modulus", "replacement", "action"} {
		if !known["dcgmExporter.serviceMonitor.relabelings[]."+key] {
			t.Errorf("relabelings have no %s", key)
		}
	}
}

// Defaults live in the code: a default in the schema would be stored, and an object that is applied
// and read back would differ. Nobody applies a status: by its default, readers see that it is not written yet.
func TestTheSchemaHasNoDefaults(t *testing.T) {
	walk("", readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if s.Default != nil && (path != ".status" || string(s.Default.Raw) != `{"observedGeneration":-1}`) {
			t.Errorf("%s has the default %s", path, s.Default.Raw)
		}
	})
}

// Every field of the spec is optional, so that any block can be omitted or empty.
func TestNothingInTheSpecIsRequired(t *testing.T) {
	allowed := []string{".name", ".key", ".effect"}
	walk("", readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if !strings.HasPrefix(path, ".spec") && path != "" {
			return
		}
		for _, field := range s.Required {
			if !strings.HasSuffix(path, "[]") || !slices.Contains(allowed, "."+field) {
				t.Errorf("%s requires %s", path, field)
			}
		}
	})
}
