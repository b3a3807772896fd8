package install

import (
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// guides are the installation commands of public guides on GPUs in Kubernetes.
var guides = []renderCase{
	{name: "no flags"},
	{
		name: "every operand named, one turned off",
		set: "driver.enabled=true toolkit.enabled=true devicePlugin.enabled=true dcgmExporter.enabled=true " +
			"migManager.enabled=false gfd.enabled=true",
		spec: "{driver: {enabled: true}, toolkit: {enabled: true}, devicePlugin: {enabled: true}, dcgmExporter: {enabled: " +
			"true}, migManager: {enabled: false}, gfd: {enabled: true}}",
	},
	{name: "a driver's version", set: "driver.version=580.82.07", spec: "driver: {version: 580.82.07}"},
	{name: "a toolkit's version without v", set: "toolkit.version=1.17.4", spec: "toolkit: {version: 1.17.4}"},
	{name: "single MIG", set: "mig.strategy=single", spec: "mig: {strategy: single}"},
	{name: "mixed MIG", set: "mig.strategy=mixed", spec: "mig: {strategy: mixed}"},
	{
		name: "a MIG layout under an invented name", set: "mig.config=all-1g.10gb",
		spec: "migManager: {config: {default: all-1g.10gb}}",
	},
	{
		name: "the default runtime of old", set: "operator.defaultRuntime=containerd",
	},
	{
		name: "time-slicing from a ConfigMap", set: "devicePlugin.config.name=gpu-sharing-config",
		spec: "devicePlugin: {config: {name: gpu-sharing-config}}",
	},
	{
		name: "MPS under an invented name", set: "mps.enabled=true mps.replicas=8",
		spec: "devicePlugin: {config: {name: gpu-operator-mps, default: mps}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			config := field(g, find(objects, "ConfigMap", "gpu-operator-mps"), "data", "mps")
			g.Expect(config).To(MatchYAML("{version: v1, sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 8}]}}}"))
		},
	},
	{
		name: "a ServiceMonitor", set: "dcgmExporter.serviceMonitor.enabled=true dcgmExporter.serviceMonitor.interval=30s",
		spec: "dcgmExporter: {serviceMonitor: {enabled: true, interval: 30s}}",
	},
	{
		name: "another namespace", flags: []string{"--namespace", "nvidia-gpu-operator"},
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(find(objects, "Deployment", "gpu-operator").GetNamespace()).To(Equal("nvidia-gpu-operator"))
		},
	},
}
