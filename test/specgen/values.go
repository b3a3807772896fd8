package specgen

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// examples are values of fields whose schema does not define their format, by path suffix. The first match applies.
var examples = []struct {
	end    string
	values []any
}{
	{"tolerations", []any{[]any{map[string]any{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}}}},
	{"podSecurityContext", []any{map[string]any{"runAsUser": int64(1000), "fsGroup": int64(2000)}}},
	{"nodeAffinity", []any{map[string]any{
		"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
			"weight": int64(1), "preference": map[string]any{
				"matchExpressions": []any{map[string]any{"key": "team", "operator": "Exists"}},
			},
		}},
	}}},
	{"limits", []any{map[string]any{"memory": "512Mi"}}},
	{"requests", []any{map[string]any{"cpu": "10m"}}},
	{"daemonsets.nodeSelector", []any{map[string]any{"team": "hpc"}}},
	{"nodePools[].nodeSelector", []any{PoolLabels}},
	{"nodeSelector", []any{map[string]any{"team": "hpc"}}},
	{"labels", []any{map[string]any{"example.com/team": "hpc"}}},
	{"annotations", []any{map[string]any{"example.com/owner": "the HPC team"}}},
	{"additionalLabels", []any{map[string]any{"release": "prometheus"}}},
	{"containerResources[].name", []any{}},
	{"env[].name", []any{"EXAMPLE", "A.b-c_1"}},
	{"imagePullPolicy", []any{"Always", "Never", "IfNotPresent"}},
	{"imagePullSecrets", []any{[]any{"registry"}, []any{"registry", "mirror"}}},
	{"repository", []any{"registry.example.com/nvidia", "registry.example.com:5000/a/b"}},
	{"global.registry", []any{"mirror.example.com:5000", "mirror.example.com/proxy"}},
	{"version", []any{"v9.9.9", "sha256:" + strings.Repeat("ab", 32)}},
	{"image", []any{"renamed"}},
	{"priorityClassName", []any{"system-cluster-critical"}},
	{"podLabelAllowlistRegex", []any{[]any{"^app$", "team.*"}}},
	{"driver.version", []any{"580.126.09", "595"}},
	{"interval", []any{"30s", "1m"}},
	{"scrapeTimeout", []any{"5s"}},
	{"deadlines.discovered", []any{"90s", "1h30m", "0s"}},
	{"deadlines.driver", []any{"90s", "1h30m", "0s"}},
	{"deadlines.toolkit", []any{"90s", "1h30m", "0s"}},
	{"deadlines.devicePlugin", []any{"90s", "1h30m", "0s"}},
	{"deadlines.allocatable", []any{"90s", "1h30m", "0s"}},
	{"deadlines.validated", []any{"90s", "1h30m", "0s"}},
	{"deadlines.other", []any{"90s", "1h30m", "0s"}},
	{"proxy.httpProxy", []any{"http://proxy.example.com:3128"}},
	{"proxy.httpsProxy", []any{"http://proxy.example.com:3128"}},
	{"proxy.noProxy", []any{"10.0.0.0/8,.svc"}},
	{"podSelector", []any{"app=trainer"}},
	{"rollingUpdate.maxUnavailable", []any{"2", int64(3), "25%"}},
	{"resourceReplicas[].name", []any{"nvidia.com/gpu", "nvidia.com/mig-1g.10gb"}},
	{"health.minUsable", []any{"75%", int64(7)}},
	{"actions.maxNodes", []any{"20%", int64(2)}},
	{"actions.dwell", []any{"90s", "1h30m", "0s"}},
	{"upgradePolicy.maxUnavailable", []any{"25%", int64(2)}},
	{"relabelings[].action", []any{"replace", "keep"}},
	{"relabelings[].sourceLabels", []any{[]any{"__meta_kubernetes_pod_node_name"}}},
	{"relabelings[].targetLabel", []any{"instance"}},
	{"relabelings[].regex", []any{"(.*)"}},
	{"relabelings[].replacement", []any{"$1"}},
	{"relabelings[].separator", []any{";"}},
	{"artifactsDir", []any{"/opt/kata"}},
	{"directory", []any{"/var/lib/jobs"}},
	{"installDir", []any{"/opt/nvidia"}},
	{"mps.root", []any{"/run/nvidia/own-mps"}},
	{"rootFS", []any{"/host-root"}},
	{"driverInstallDir", []any{"/opt/driver"}},
	{"kubeletRootDir", []any{"/data/kubelet"}},
	{"runtimeClass", []any{"gpu"}},
	{
		"nodeStartup.taints",
		[]any{[]any{map[string]any{"key": "example.com/gpu-starting", "value": "now", "effect": "NoSchedule"}}},
	},
	{"gracePeriod", []any{"90s", "1h30m"}},
	{"args", []any{[]any{"--verbose"}}},
}

// Values returns some distinct values that the API accepts.
func (f Field) Values() []any {
	path := f.String()
	for _, example := range examples {
		if path == example.end || strings.HasSuffix(path, "."+example.end) || strings.HasSuffix(
			path, example.end,
		) && strings.HasPrefix(example.end, "[]") {
			return example.values
		}
	}
	return valuesOf(f.Schema)
}

func valuesOf(schema *apiextensionsv1.JSONSchemaProps) []any {
	var values []any
	switch {
	case len(schema.Enum) > 0:
		for _, value := range schema.Enum {
			if text := strings.Trim(string(value.Raw), `"`); text != "" {
				values = append(values, text)
			}
		}
	case schema.Type == "boolean":
		values = []any{true, false}
	case schema.Type == "integer":
		values = []any{int64(2), int64(77)}
	case schema.Type == "string":
		// Valid as the name of an object, as a key and as free text.
		values = []any{"example"}
	case schema.Type == "array" && schema.Items.Schema.Type == "string":
		values = []any{[]any{"example"}}
	case schema.Type == "object" && schema.AdditionalProperties != nil:
		values = []any{map[string]any{"example": "value"}}
	}
	return values
}
