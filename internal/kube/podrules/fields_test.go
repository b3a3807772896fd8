package podrules_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// checked are the types, and the names of text fields, that become parts of pods and have rules.
var checked = []string{
	"v1.ResourceRequirements", "v1.EnvVar", "[]v1.Toleration", "v1.PodSecurityContext", "v1.ProbeSpec", "v1.Labels",
	"v1.NodePoolSelector", "v1.Annotations", "v1.StartupTaint", "priorityClassName", "secretEnv",
	"podSelector",
}

// free are those that become no part of a pod, or may have any value that the schema admits there.
var free = []string{
	// Images, which the schema bounds; their pull policies are normalised, and nothing checks the names of Secrets.
	"repository", "image", "version", "v1.PullPolicy", "imagePullSecrets", "registry",
	// Arguments and the values of variables may be any text.
	"args", "httpProxy", "httpsProxy", "noProxy",
	// Names of objects that volumes refer to, and keys, which the schema bounds.
	"name", "config", "configMapName", "secretName", "key", "default",
	// Paths on hosts, and settings of programs.
	"rootFS", "driverInstallDir", "kubeletRootDir", "installDir", "directory", "root", "artifactsDir",
	"podLabelAllowlistRegex", "v1.MIGStrategy", "v1.KernelModuleType", "runtimeClass", "defaultRuntime",
	"v1.SandboxMode", "v1.Workload", "v1.CCMode", "v1.MIGBusyAction", "v1.DiscoveryMode", "url", "pullSecret",
	// Settings of the operator, and of objects that are no pods.
	"updateStrategy", "intstr.IntOrString", "v1.Duration", "v1.NodeAffinity", "v1alpha1.DriverType",
	"v1.Deadline", "v1.OnFailure", "v1.HealthAction", "dwell", "v1.ServiceType", "v1.ServiceInternalTrafficPolicy",
	"interval", "scrapeTimeout", "sourceLabels", "targetLabel", "regex", "replacement", "separator", "action",
}

// Each field of the API either has a rule or is known to need none. A field of a new type or, if it is a text, of a new
// name fails here: does it become a part of pods, and what does Kubernetes require of it there?
func TestEachFieldHasARuleOrNeedsNone(t *testing.T) {
	fields := map[string][]string{}
	collect(reflect.TypeFor[v1.ClusterPolicySpec](), "spec", fields)
	collect(reflect.TypeFor[v1alpha1.NVIDIADriverSpec](), "spec", fields)
	for kind, paths := range fields {
		if !slices.Contains(checked, kind) && !slices.Contains(free, kind) {
			t.Errorf("%s needs a rule, or a place among those that need none: %s", kind, strings.Join(paths, " "))
		}
	}
	for _, kind := range slices.Concat(checked, free) {
		if len(fields[kind]) == 0 {
			t.Errorf("no field has %s", kind)
		}
	}
	least := 0
	for _, kind := range checked {
		least += len(fields[kind])
	}
	if least < 150 {
		t.Errorf("%d fields have rules: the walk does not reach them", least)
	}
}

// collect adds the paths of the fields in a type by their kind: the name of the field for a text or a list of texts,
// nothing for a number or a switch, else the type.
func collect(kind reflect.Type, path string, fields map[string][]string) {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	name := path[strings.LastIndex(path, ".")+1:]
	add := func(what string) { fields[what] = append(fields[what], path) }
	switch {
	case slices.Contains(checked, kind.String()):
		add(kind.String())
	case kind.Kind() == reflect.Bool, kind.Kind() == reflect.Int32, kind.Kind() == reflect.Int64:
	case kind == reflect.TypeFor[string](), kind == reflect.TypeFor[[]string]():
		add(name)
	case kind.Kind() == reflect.Slice:
		collect(kind.Elem(), path+"[]", fields)
	case kind.Kind() == reflect.Struct && strings.HasPrefix(kind.PkgPath(), ownPackages):
		for i := range kind.NumField() {
			field := kind.Field(i)
			below, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if below != "" {
				below = "." + below
			}
			collect(field.Type, path+below, fields)
		}
	default:
		add(kind.String())
	}
}

// ownPackages begins the paths of the packages of the API.
const ownPackages = "github.com/clusterpolicy/gpu-operator/api/"
