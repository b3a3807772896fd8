package effective_test

import (
	"reflect"
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// without are the fields that have no default here, and why: by their path, or by the type that declares them
// for all places where it is used. See doc.go.
var without = map[string]string{
	"migManager.config":                       "its presence has a meaning",
	"operator.defaultRuntime":                 deprecated,
	"operator.initContainer":                  deprecated,
	"driver.useOpenKernelModules":             deprecated,
	"dcgm.hostPort":                           deprecated,
	"cdi.default":                             deprecated,
	"psp":                                     deprecated,
	"kataManager":                             deprecated,
	"OperatorSpec.labels":                     deprecated,
	"OperatorSpec.annotations":                deprecated,
	"DriverLicensingConfigSpec.configMapName": deprecated,

	"ImageSpec.repository":               "internal/policy/image fills it in",
	"ImageSpec.image":                    "internal/policy/image fills it in",
	"ImageSpec.version":                  "internal/policy/image fills it in",
	"nodeStatusExporter.imagePullPolicy": "that of validator",
	"PlacementSpec.tolerations":          "those of daemonsets, but for nodeDiscovery",
	"PlacementSpec.nodeSelector":         "that of daemonsets",
	"PlacementSpec.priorityClassName":    "that of daemonsets",
	"dcgmExporter.hostNetwork":           "the engine that env names decides",
	"RollingUpdateSpec.maxUnavailable":   "the operand decides, see Spec.MaxUnavailable",
	"DevicePluginConfigSpec.default":     "the keys of the ConfigMap decide, see operand.Input.DefaultPluginConfig",
	"driver.licensingConfig.nlsEnabled":  "the keys of the Secret decide",
	"DaemonSetsSpec.nodeSelector":        "all nodes",
	"sharing":                            "GPUs are not shared, and in a node pool an empty block is not absent",
	"nodePools":                          "what a node pool leaves out is as in the rest of the spec",

	"ContainerSpec.resources":          "those of the manifest",
	"ContainerSpec.args":               "those of the manifest",
	"NodeDiscoverySpec.resources":      "those of the manifest",
	"HealthAgentSpec.resources":        "those of the manifest",
	"PlacementSpec.containerResources": "those of the manifest",
	"GDSSpec.args":                     "those of the manifest",
	"GDRCopySpec.args":                 "those of the manifest",
	"driver.startupProbe.initialDelaySeconds": "by default it probes from the beginning, and next to other times " +
		"NVIDIA's default applies",
	"driver.livenessProbe.*":           "an empty block means no probe, and missing keys have the defaults of Kubernetes",
	"driver.readinessProbe.*":          "an empty block means no probe, and missing keys have the defaults of Kubernetes",
	"MIGSpec.strategy":                 "the device plugin decides",
	"ServiceMonitorSpec.interval":      "Prometheus decides",
	"ServiceMonitorSpec.scrapeTimeout": "Prometheus decides",
	"CCManagerSpec.defaultMode":        "nodes keep the mode that they have",

	"HealthActionsSpec.dwell":                 "the fault and the action decide, see package healthaction",
	"NodeStartupSpec.taints":                  none,
	"ImageSpec.imagePullSecrets":              none,
	"GlobalSpec.imagePullSecrets":             none,
	"GlobalSpec.registry":                     none,
	"ProxySpec.httpProxy":                     none,
	"ProxySpec.httpsProxy":                    none,
	"ProxySpec.noProxy":                       none,
	"CABundleSpec.configMapName":              none,
	"ContainerSpec.env":                       none,
	"DriverManagerSpec.env":                   none,
	"GDSSpec.env":                             none,
	"GDRCopySpec.env":                         none,
	"ValidatorComponentSpec.env":              none,
	"DaemonSetsSpec.labels":                   none,
	"DaemonSetsSpec.annotations":              none,
	"PlacementSpec.labels":                    none,
	"PlacementSpec.annotations":               none,
	"ServiceMonitorSpec.additionalLabels":     none,
	"ServiceMonitorSpec.relabelings":          none,
	"DCGMExporterSpec.podLabelAllowlistRegex": "all labels",
	"DCGMExporterConfigSpec.name":             none,
	"DevicePluginConfigSpec.name":             none,
	"DriverRepoConfigSpec.configMapName":      none,
	"DriverCertConfigSpec.name":               none,
	"DriverLicensingConfigSpec.secretName":    none,
	"VirtualTopologyConfigSpec.config":        none,
	"KernelModuleConfigSpec.name":             none,
	"DriverSpec.secretEnv":                    none,
	"WaitForCompletionSpec.podSelector":       "it waits for no pod",
	"DrainSpec.podSelector":                   "all pods",
}

const (
	deprecated = "deprecated"
	none       = "empty means none"
)

// A new field of the API needs a default, or a reason here why it has none.
func TestEveryFieldHasADefaultOrNone(t *testing.T) {
	used := map[string]bool{}
	spec := effective.Of(v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{}}})
	walk(reflect.ValueOf(spec.ClusterPolicySpec), "", func(path, declared string, value reflect.Value) {
		byPath, hasPath := listed(path)
		_, hasType := without[declared]
		switch {
		case value.IsZero() && hasPath:
			used[byPath] = true
		case value.IsZero() && hasType:
			used[declared] = true
		case value.IsZero():
			t.Errorf("spec.%s (%s) has no default: add one, or a reason to the list in this test", path, declared)
		case hasPath && path != "migManager.config":
			t.Errorf("spec.%s has a default, %v, but is in the list of fields without", path, value)
		}
	})
	if effective.Of(v1.ClusterPolicySpec{}).MIGManager.Config == nil {
		used["migManager.config"] = true
	}
	for name := range without {
		if !used[name] {
			t.Errorf("%s is in the list of fields without a default, but does not exist or has one", name)
		}
	}
}

func listed(path string) (entry string, found bool) {
	parts := path[:strings.LastIndex(path, ".")+1] + "*"
	if _, found = without[parts]; found {
		return parts, true
	}
	_, found = without[path]
	return path, found
}

// walk visits every field of the API's own types, including those of blocks that are set.
func walk(in reflect.Value, prefix string, visit func(path, declared string, value reflect.Value)) {
	for i := range in.NumField() {
		field, value := in.Type().Field(i), in.Field(i)
		key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options == "inline" {
			walk(value, prefix, visit)
			continue
		}
		visit(prefix+key, in.Type().Name()+"."+key, value)
		if value.Kind() == reflect.Pointer && !value.IsNil() {
			value = value.Elem()
		}
		if value.Kind() == reflect.Struct && value.Type().PkgPath() == reflect.TypeFor[v1.ClusterPolicySpec]().PkgPath() {
			walk(value, prefix+key+".", visit)
		}
	}
}
