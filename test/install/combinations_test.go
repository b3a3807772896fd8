package install

import (
	"os"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// combinations are values of NVIDIA's chart and of this one, alone and combined. Those of the operator's Deployment
// are in deployment_test.go.
var combinations = append([]renderCase{
	{name: "no driver", set: "driver.enabled=false", spec: "driver: {enabled: false}"},
	{
		name: "no driver, no toolkit", set: "driver.enabled=false toolkit.enabled=false",
		spec: "{driver: {enabled: false}, toolkit: {enabled: false}}",
	},
	{name: "a whole number as a version", set: "driver.version=595", spec: `driver: {version: "595"}`},
	{
		name: "a version with two numbers", set: "gds.enabled=true gds.version=2.26",
		spec: `gds: {enabled: true, version: "2.26"}`,
	},
	{name: "a digest", set: "toolkit.version=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		spec: `toolkit: {version: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}`},
	{name: "a driver from a mirror", set: "driver.repository=registry.local:5000/nvidia driver.image=driver " +
		"driver.version=580.82.07 driver.imagePullPolicy=Always driver.imagePullSecrets[0]=mine",
		spec: `driver: {repository: "registry.local:5000/nvidia", image: driver, version: 580.82.07, imagePullPolicy: ` +
			`Always, imagePullSecrets: [mine]}`},
	{name: "open kernel modules", set: "driver.kernelModuleType=open", spec: "driver: {kernelModuleType: open}"},
	{
		name: "open kernel modules as of old", set: "driver.useOpenKernelModules=true",
		spec: "driver: {useOpenKernelModules: true}",
	},
	{
		name: "precompiled", set: "driver.usePrecompiled=true driver.version=580",
		spec: `driver: {usePrecompiled: true, version: "580"}`,
	},
	{
		name: "RDMA", set: "driver.rdma.enabled=true driver.rdma.useHostMofed=true",
		spec: "driver: {rdma: {enabled: true, useHostMofed: true}}",
	},
	{name: "a start-up probe", set: "driver.startupProbe.initialDelaySeconds=60 driver.startupProbe.failureThreshold=240",
		spec: "driver: {startupProbe: {initialDelaySeconds: 60, failureThreshold: 240}}"},
	{
		name: "no automatic upgrade", set: "driver.upgradePolicy.autoUpgrade=false",
		spec: "driver: {upgradePolicy: {autoUpgrade: false}}",
	},
	{name: "an upgrade policy", set: "driver.upgradePolicy.maxParallelUpgrades=0 " +
		"driver.upgradePolicy.maxUnavailable=10% driver.upgradePolicy.waitForCompletion.timeoutSeconds=60 " +
		"driver.upgradePolicy.waitForCompletion.podSelector=app=training",
		spec: "driver: {upgradePolicy: {maxParallelUpgrades: 0, maxUnavailable: 10%, waitForCompletion: {timeoutSeconds: " +
			"60, podSelector: app=training}}}"},
	{
		name: "a number of nodes to upgrade", set: "driver.upgradePolicy.maxUnavailable=2",
		spec: "driver: {upgradePolicy: {maxUnavailable: 2}}",
	},
	{name: "NVIDIA's name of the deletion of pods", set: "driver.upgradePolicy.gpuPodDeletion.force=true " +
		"driver.upgradePolicy.gpuPodDeletion.timeoutSeconds=600",
		spec: "driver: {upgradePolicy: {podDeletion: {force: true, timeoutSeconds: 600}}}"},
	{
		name: "the policy's name of it", set: "driver.upgradePolicy.podDeletion.deleteEmptyDir=true",
		spec: "driver: {upgradePolicy: {podDeletion: {deleteEmptyDir: true}}}",
	},
	{
		name: "drains", set: "driver.upgradePolicy.drain.enable=true driver.upgradePolicy.drain.timeoutSeconds=120",
		spec: "driver: {upgradePolicy: {drain: {enable: true, timeoutSeconds: 120}}}",
	},
	{name: "the driver's manager", set: "driver.manager.version=v0.9.0 " +
		"driver.manager.env[0].name=ENABLE_GPU_POD_EVICTION driver.manager.env[0].value=false",
		spec: `driver: {manager: {version: v0.9.0, env: [{name: ENABLE_GPU_POD_EVICTION, value: "false"}]}}`},
	{name: "variables whose values look like other types", values: "driver: {env: [{name: A, value: 1}, {name: B, " +
		"value: true}, {name: C, value: 1.5}, {name: D, value: text}, {name: E}]}",
		spec: `driver: {env: [{name: A, value: "1"}, {name: B, value: "true"}, {name: C, value: "1.5"}, {name: D, value: ` +
			`text}, {name: E}]}`},
	{name: "resources in all notations", values: "driver: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: " +
		"0.5, memory: 200000000}}}",
		spec: `driver: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: "0.5", memory: 200000000}}}`},
	{name: "configurations of the driver", set: "driver.repoConfig.configMapName=repos driver.certConfig.name=certs " +
		"driver.kernelModuleConfig.name=params driver.virtualTopology.config=topology driver.secretEnv=secrets",
		spec: "driver: {repoConfig: {configMapName: repos}, certConfig: {name: certs}, kernelModuleConfig: {name: params}, " +
			"virtualTopology: {config: topology}, secretEnv: secrets}"},
	{
		name: "a licence", set: "driver.licensingConfig.secretName=licence driver.licensingConfig.nlsEnabled=true",
		spec: "driver: {licensingConfig: {secretName: licence, nlsEnabled: true}}",
	},
	{name: "empty strings as in NVIDIA's values", values: `driver: {repoConfig: {configMapName: ""}, certConfig: {name: ` +
		`""}, licensingConfig: {secretName: ""}, virtualTopology: {config: ""}}`,
		spec: `driver: {repoConfig: {configMapName: ""}, certConfig: {name: ""}, licensingConfig: {secretName: ""}, ` +
			`virtualTopology: {config: ""}}`},
	{
		name:   "nulls and empty blocks",
		values: "driver: {enabled: null, env: null}\ntoolkit: null\ngfd: {}\ncdi: {enabled: null}", spec: "gfd: {}",
	},
	{
		name: "the chart's own defaults removed", bare: true,
		values: "driver: {upgradePolicy: null, licensingConfig: null}\nmig: null\ndcgmExporter: {serviceMonitor: null}\n" +
			"migManager: null",
	},
	{name: "the toolkit's directory", set: "toolkit.installDir=/opt/nvidia", spec: "toolkit: {installDir: /opt/nvidia}"},
	{name: "the toolkit on k3s", set: "toolkit.env[0].name=CONTAINERD_CONFIG " +
		"toolkit.env[0].value=/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl " +
		"toolkit.env[1].name=CONTAINERD_SOCKET toolkit.env[1].value=/run/k3s/containerd/containerd.sock",
		spec: "toolkit: {env: [{name: CONTAINERD_CONFIG, value: " +
			"/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl}, {name: CONTAINERD_SOCKET, value: " +
			"/run/k3s/containerd/containerd.sock}]}"},
	{name: "no CDI", set: "cdi.enabled=false", spec: "cdi: {enabled: false}"},
	{name: "NRI", set: "cdi.enabled=true cdi.nriPluginEnabled=true", spec: "cdi: {enabled: true, nriPluginEnabled: true}"},
	{name: "the CDI default of old", set: "cdi.default=true", spec: "cdi: {default: true}"},
	{
		name: "a default configuration of the plugin", set: "devicePlugin.config.name=plugin devicePlugin.config.default=any",
		spec: "devicePlugin: {config: {name: plugin, default: any}}",
	},
	{
		name: "a created configuration of the plugin",
		values: "devicePlugin: {config: {create: true, name: plugin, default: any, data: {any: \"version: v1\\nflags: " +
			"{migStrategy: none}\\n\", mig: {version: v1}}}}",
		spec: "devicePlugin: {config: {name: plugin, default: any}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			config := find(objects, "ConfigMap", "plugin")
			g.Expect(config.GetNamespace()).To(Equal(namespace))
			g.Expect(field(g, config, "data", "any")).To(Equal("version: v1\nflags: {migStrategy: none}\n"))
			g.Expect(field(g, config, "data", "mig")).To(MatchYAML("version: v1"))
		},
	},
	{
		name:   "NVIDIA's values of that block",
		values: `devicePlugin: {enabled: true, config: {create: false, name: "", default: "", data: {}}}`,
		spec:   `devicePlugin: {enabled: true, config: {name: "", default: ""}}`,
	},
	{name: "a list strategy", set: "devicePlugin.env[0].name=DEVICE_LIST_STRATEGY devicePlugin.env[0].value=envvar " +
		"devicePlugin.args[0]=--pass-device-specs",
		spec: "devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: envvar}], args: [--pass-device-specs]}"},
	{name: "the directory of MPS", set: "devicePlugin.mps.root=/run/mps", spec: "devicePlugin: {mps: {root: /run/mps}}"},
	{
		name: "MPS for two", set: "mps.enabled=true", spec: "devicePlugin: {config: {name: gpu-operator-mps, default: mps}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(field(g, find(objects, "ConfigMap", "gpu-operator-mps"), "data", "mps")).To(ContainSubstring("replicas: 2"))
		}},
	{name: "MPS off", set: "mps.enabled=false mps.replicas=8", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(find(objects, "ConfigMap", "gpu-operator-mps")).To(BeNil())
	}},
	{
		name: "dashboards in a folder", set: "dashboards.enabled=true", flags: []string{
			"--set-string", "dashboards.labels.grafana_dashboard=gpu",
			"--set-string", "dashboards.annotations.grafana_folder=GPUs",
		},
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			for _, name := range []string{"fleet", "node", "operator"} {
				found := find(objects, "ConfigMap", "gpu-operator-dashboard-"+name)
				g.Expect(field(g, found, "metadata", "labels")).To(HaveKeyWithValue("grafana_dashboard", "gpu"))
				g.Expect(found.GetAnnotations()).To(Equal(map[string]string{"grafana_folder": "GPUs"}))
				text, err := os.ReadFile(repo + "/config/dashboards/" + name + ".json")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(field(g, found, "data", "gpu-operator-"+name+".json")).To(MatchJSON(text))
			}
		},
	},
	{name: "dashboards", set: "dashboards.enabled=true", then: func(g *WithT, objects []*unstructured.Unstructured) {
		labels := find(objects, "ConfigMap", "gpu-operator-dashboard-fleet").GetLabels()
		g.Expect(labels).To(HaveKeyWithValue("grafana_dashboard", "1"))
	}},
	{
		name: "created MIG layouts",
		values: "migManager: {config: {create: true, name: layouts, default: all-disabled, data: {config.yaml: \"version: " +
			"v1\\nmig-configs: {}\\n\"}}}",
		spec: "migManager: {config: {name: layouts, default: all-disabled}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(field(g, find(objects, "ConfigMap", "layouts"), "data",
				"config.yaml")).To(Equal("version: v1\nmig-configs: {}\n"))
		},
	},
	{name: "the clients of GPUs on the host", set: "migManager.gpuClientsConfig.name=clients " +
		"migManager.env[0].name=WITH_REBOOT migManager.env[0].value=true",
		spec: `migManager: {gpuClientsConfig: {name: clients}, env: [{name: WITH_REBOOT, value: "true"}]}`},
	{name: "no MIG strategy", set: "mig.strategy=none", spec: "mig: {strategy: none}"},
	{
		name: "the invented name beside its own",
		set:  "mig.config=all-disabled migManager.config.default=all-disabled migManager.config.name=layouts",
		spec: "migManager: {config: {name: layouts, default: all-disabled}}",
	},
	{
		name: "created metrics as one string", set: "dcgmExporter.config.name=metrics dcgmExporter.config.create=true " +
			"dcgmExporter.config.data=DCGM_FI_DEV_GPU_UTIL\\,gauge\\,x",
		spec: "dcgmExporter: {config: {name: metrics}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(field(g, find(objects, "ConfigMap", "metrics"), "data",
				"dcgm-metrics.csv")).To(Equal("DCGM_FI_DEV_GPU_UTIL,gauge,x"))
		},
	},
	{
		name: "a stand-alone engine", set: "dcgm.enabled=true dcgm.resources.limits.memory=1Gi",
		spec: "dcgm: {enabled: true, resources: {limits: {memory: 1Gi}}}",
	},
	{name: "the exporter's options", set: "dcgmExporter.enablePodLabels=true dcgmExporter.enablePodUID=true " +
		"dcgmExporter.podLabelAllowlistRegex[0]=^app$ dcgmExporter.hostPID=true dcgmExporter.hostNetwork=true " +
		"dcgmExporter.service.internalTrafficPolicy=Local",
		spec: `dcgmExporter: {enablePodLabels: true, enablePodUID: true, podLabelAllowlistRegex: ["^app$"], hostPID: true, ` +
			`hostNetwork: true, service: {internalTrafficPolicy: Local}}`},
	{
		name: "jobs of a workload manager",
		set:  "dcgmExporter.hpcJobMapping.enabled=true dcgmExporter.hpcJobMapping.directory=/var/lib/jobs",
		spec: "dcgmExporter: {hpcJobMapping: {enabled: true, directory: /var/lib/jobs}}",
	},
	{name: "labels for Prometheus", values: "dcgmExporter: {serviceMonitor: {enabled: true, honorLabels: false, " +
		"additionalLabels: {release: prom, build: 7}, relabelings: [{action: replace, sourceLabels: " +
		"[__meta_kubernetes_pod_node_name], targetLabel: instance}]}}",
		spec: `dcgmExporter: {serviceMonitor: {enabled: true, honorLabels: false, additionalLabels: {release: prom, build: ` +
			`"7"}, relabelings: [{action: replace, sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: instance}]}}`},
	{
		name: "no feature discovery, but the status exporter", set: "gfd.enabled=false nodeStatusExporter.enabled=true",
		spec: "{gfd: {enabled: false}, nodeStatusExporter: {enabled: true}}",
	},
	{
		name: "GPUDirect Storage and GDRCopy", set: "gds.enabled=true gdrcopy.enabled=true",
		spec: "{gds: {enabled: true}, gdrcopy: {enabled: true}}",
	},
	{name: "all DaemonSets", values: "daemonsets: {labels: {a: b, number: 1}, annotations: {c: d}, priorityClassName: " +
		"high, tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}, {key: spot, value: yes, effect: " +
		"NoExecute, tolerationSeconds: 30}], updateStrategy: RollingUpdate, rollingUpdate: {maxUnavailable: \"2\"}, " +
		"podSecurityContext: {fsGroup: 1000}}",
		spec: `daemonsets: {labels: {a: b, number: "1"}, annotations: {c: d}, priorityClassName: high, tolerations: [{key: ` +
			`nvidia.com/gpu, operator: Exists, effect: NoSchedule}, {key: spot, value: "true", effect: NoExecute, ` +
			`tolerationSeconds: 30}], updateStrategy: RollingUpdate, rollingUpdate: {maxUnavailable: "2"}, ` +
			`podSecurityContext: {fsGroup: 1000}}`},
	{
		name: "host paths",
		set:  "hostPaths.rootFS=/host hostPaths.driverInstallDir=/opt/driver hostPaths.kubeletRootDir=/data/kubelet",
		spec: "hostPaths: {rootFS: /host, driverInstallDir: /opt/driver, kubeletRootDir: /data/kubelet}",
	},
	{
		name: "Pod Security Admission", set: "psa.enabled=true psp.enabled=false",
		spec: "{psa: {enabled: true}, psp: {enabled: false}}",
	},
	{name: "an own Node Feature Discovery", set: "nfd.enabled=false", spec: "nodeDiscovery: {mode: nfd}"},
	{name: "the built-in discovery", set: "nfd.enabled=true"},
	{
		name: "none of NVIDIA's, but the built-in one", set: "nfd.enabled=false nodeDiscovery.mode=builtin",
		spec: "nodeDiscovery: {mode: builtin}",
	},
	{name: "values of the subchart that does not exist here", values: "nfd: {enabled: true, nodefeaturerules: " +
		"false}\nnode-feature-discovery: {worker: {tolerations: [{key: a}]}, master: {extraLabelNs: [nvidia.com]}}"},
	{name: "checks with a workload", set: "validator.plugin.env[0].name=WITH_WORKLOAD " +
		"validator.plugin.env[0].value=false validator.version=v24.6.0 validator.repository=nvcr.io/nvidia/cloud-native " +
		"validator.image=gpu-operator-validator",
		spec: `validator: {plugin: {env: [{name: WITH_WORKLOAD, value: "false"}]}, version: v24.6.0, repository: ` +
			`nvcr.io/nvidia/cloud-native, image: gpu-operator-validator}`},
	{name: "a mirror, a proxy, pull secrets and certificates for all", set: "global.registry=mirror.local:5000/proxy " +
		"global.imagePullSecrets[0]=mirror global.proxy.httpsProxy=http://proxy:3128 global.caBundle.configMapName=ca",
		spec: `global: {registry: "mirror.local:5000/proxy", imagePullSecrets: [mirror], proxy: {httpsProxy: ` +
			`"http://proxy:3128"}, caBundle: {configMapName: ca}}`},
	{
		name: "global values of a parent chart",
		set:  "global.registry=mirror.local global.storageClass=fast global.postgresql.auth=x",
		spec: "global: {registry: mirror.local}",
	},
	{name: "a pause", set: "paused=true", spec: "paused: true"},
	{name: "nodes for one operand", set: "toolkit.nodeSelector.pool=a dcgmExporter.tolerations[0].operator=Exists " +
		"devicePlugin.priorityClassName=high devicePlugin.containerResources[0].name=nvidia-device-plugin " +
		"devicePlugin.containerResources[0].limits.memory=1Gi",
		spec: "{toolkit: {nodeSelector: {pool: a}}, dcgmExporter: {tolerations: [{operator: Exists}]}, devicePlugin: " +
			"{priorityClassName: high, containerResources: [{name: nvidia-device-plugin, limits: {memory: 1Gi}}]}}"},
	{name: "virtual machines", set: "sandboxWorkloads.enabled=true sandboxWorkloads.defaultWorkload=vm-passthrough " +
		"vfioManager.enabled=true sandboxDevicePlugin.enabled=true vgpuManager.enabled=false ccManager.defaultMode=off " +
		"kataManager.enabled=false",
		spec: `{sandboxWorkloads: {enabled: true, defaultWorkload: vm-passthrough}, vfioManager: {enabled: true}, ` +
			`sandboxDevicePlugin: {enabled: true}, vgpuManager: {enabled: false}, ccManager: {defaultMode: "off"}, ` +
			`kataManager: {enabled: false}}`},
	{name: "values of kinds that are not used", values: "driver: {nvidiaDriverCRD: {enabled: false, " +
		"deployDefaultCR: true, driverType: gpu, nodeSelector: {}}}\ngpuCluster: {deployCR: false}\ndraDriver: {version: " +
		"v0.5.0, featureGates: {}, computeDomains: {enabled: true}}"},
	{name: "no policy", set: "clusterPolicy.deployCR=false driver.version=1", without: true},
	{
		name: "OpenShift", set: "platform.openshift=true operator.use_ocp_driver_toolkit=true",
		spec: "operator: {use_ocp_driver_toolkit: true}",
	},
}, deployments...)
