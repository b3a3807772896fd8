package integration

// refused are specs that the API server does not store: the field that it names, and what it says.
var refused = []struct{ name, spec, path, message string }{
	{
		"kernel module type", "{driver: {kernelModuleType: closed}}", "spec.driver.kernelModuleType",
		`Unsupported value: "closed"`,
	},
	{"MIG strategy", "{mig: {strategy: double}}", "spec.mig.strategy", ""},
	{"update strategy", "{daemonsets: {updateStrategy: Recreate}}", "spec.daemonsets.updateStrategy", ""},
	{
		"unavailable", `{daemonsets: {rollingUpdate: {maxUnavailable: "some"}}}`,
		"spec.daemonsets.rollingUpdate.maxUnavailable", "must be a number of at most 9 digits, or a percentage of 1% to 100%",
	},
	{
		"no pod may be unavailable", "{daemonsets: {rollingUpdate: {maxUnavailable: 0}}}",
		"spec.daemonsets.rollingUpdate.maxUnavailable", "must be above 0, or no pod can be replaced",
	},
	{
		"no pod in a hundred may be unavailable", `{daemonsets: {rollingUpdate: {maxUnavailable: "0%"}}}`, "",
		"must be above 0, or no pod can be replaced",
	},
	{
		"success threshold", "{driver: {startupProbe: {successThreshold: 2}}}", "spec.driver.startupProbe.successThreshold",
		"must be 1 in a start-up probe",
	},
	{"liveness threshold", "{driver: {livenessProbe: {successThreshold: 2}}}", "", "must be 1 in a liveness probe"},
	{
		"whole image beside version", `{toolkit: {image: "nvcr.io/nvidia/container-toolkit", version: v1}}`, "",
		"image is a full reference: remove repository and version, or set image to the name only",
	},
	{
		"image", `{toolkit: {image: "-a"}}`, "spec.toolkit.image",
		"must be an image name, such as driver, or a full reference",
	},
	{
		"repository with a scheme", `{toolkit: {repository: "https://nvcr.io/nvidia"}}`, "spec.toolkit.repository",
		"must be a registry and path without https:// or a trailing slash",
	},
	{
		"repository with a slash at its end", "{vgpuManager: {repository: nvcr.io/nvidia/}}", "spec.vgpuManager.repository",
		"",
	},
	{"version", `{driver: {version: "595 "}}`, "spec.driver.version", "must be a tag, such as v1.2.3, or a digest"},
	{"digest that is cut", `{driver: {version: "sha256:0123"}}`, "", "or a digest: sha256:..."},
	{
		"pull secret", `{driver: {imagePullSecrets: [a, "b c"]}}`, "spec.driver.imagePullSecrets[1]",
		"must be a lowercase RFC 1123 subdomain, such as my-config",
	},
	{
		"requests above limits", "{driver: {resources: {limits: {memory: 1Gi}, requests: {memory: 1025Mi}}}}",
		"spec.driver.resources", "cpu or memory requests exceed limits: lower requests or raise limits",
	},
	{
		"requests of a number above limits", "{toolkit: {resources: {limits: {cpu: 100m}, requests: {cpu: 1}}}}", "",
		"cpu or memory requests exceed limits",
	},
	{
		"name of a variable", `{driver: {env: [{name: "A=B"}]}}`, "spec.driver.env[0].name",
		"must be printable ASCII without '='",
	},
	{"variable without a name", `{driver: {env: [{name: ""}]}}`, "spec.driver.env[0].name", ""},
	{
		"NRI without CDI", "{cdi: {enabled: false, nriPluginEnabled: true}}", "",
		"nriPluginEnabled needs CDI: remove cdi.enabled=false or nriPluginEnabled",
	},
	{
		"NRI without the toolkit", "{cdi: {nriPluginEnabled: true}, toolkit: {enabled: false}}", "spec.cdi.nriPluginEnabled",
		"needs the toolkit: remove toolkit.enabled=false or cdi.nriPluginEnabled",
	},
	{
		"relative path", "{hostPaths: {driverInstallDir: run/nvidia}}", "spec.hostPaths.driverInstallDir",
		"must be an absolute path, such as /opt/nvidia",
	},
	{"relative root", "{hostPaths: {rootFS: mnt}}", "spec.hostPaths.rootFS", "must be an absolute path, such as /"},
	{
		"path that climbs", "{hostPaths: {driverInstallDir: /run/../etc}}", "",
		"must not contain '..': set the resolved path",
	},
	{"MPS root that climbs", "{devicePlugin: {mps: {root: /run/..}}}", "spec.devicePlugin.mps.root", ""},
	{
		"relative kubelet directory",
		"{hostPaths: {kubeletRootDir: var/lib/kubelet}}",
		"spec.hostPaths.kubeletRootDir",
		"",
	},
	{"a string where a block goes", `{driver: "yes"}`, "spec.driver", ""},
	{
		"precompiled and GDS", "{driver: {usePrecompiled: true}, gds: {enabled: true}}", "spec.driver.usePrecompiled",
		"must not be set together with gds.enabled: remove one of them",
	},
	{
		"precompiled and GDRCopy", "{driver: {usePrecompiled: true, enabled: true}, gdrcopy: {enabled: true}}", "",
		"must not be set together with gdrcopy.enabled: remove one of them",
	},
	{
		"name of a pool", "{nodePools: [{name: 1st, nodeSelector: {a: b}}]}", "spec.nodePools[0].name",
		"must be lowercase letters, digits and '-', start with a letter",
	},
	{
		"pools of one name", "{nodePools: [{name: a, nodeSelector: {a: b}}, {name: a, nodeSelector: {a: c}}]}",
		"spec.nodePools[1]", "Duplicate value",
	},
	{
		"a pool that selects no node", "{nodePools: [{name: a, nodeSelector: {}}]}", "spec.nodePools[0]",
		"nodeSelector is empty and selects no node: add labels of its nodes",
	},
	{
		"a pool without a selector", "{nodePools: [{name: a}]}", "spec.nodePools[0]",
		"nodeSelector is empty and selects no node",
	},
	{
		"key of a label of a pool", `{nodePools: [{name: a, nodeSelector: {"a b": c}}]}`, "spec.nodePools[0].nodeSelector",
		"keys must be label keys",
	},
	{
		"value of a label of a pool", `{nodePools: [{name: a, nodeSelector: {a: "b c"}}]}`,
		"spec.nodePools[0].nodeSelector[a]", "must be letters and digits, with '-', '_' or '.' between them",
	},
	{
		"too many labels of a pool",
		"{nodePools: [{name: a, nodeSelector: {a: a, b: a, c: a, d: a, e: a, f: a, g: a, h: " +
			"a, i: a, j: a, k: a, l: a, m: a, n: a, o: a, p: a, q: a}}]}",
		"spec.nodePools[0].nodeSelector",
		"must have at most 16 items",
	},
	{
		"precompiled in a pool and GDS",
		"{nodePools: [{name: a, nodeSelector: {a: b}, driver: {usePrecompiled: true}}], gds: {enabled: true}}",
		"spec.nodePools",
		"driver.usePrecompiled of a node pool must not be set together with gds.enabled or gdrcopy.enabled: remove it, or " +
			"remove them",
	},
	{
		"precompiled in a pool and GDRCopy",
		"{nodePools: [{name: a, nodeSelector: {a: b}, driver: {usePrecompiled: true}}], gdrcopy: {enabled: true}}", "",
		"driver.usePrecompiled of a node pool must not be set together with gds.enabled or gdrcopy.enabled",
	},
	{
		"default of no ConfigMap in a pool",
		"{nodePools: [{name: a, nodeSelector: {a: b}, devicePlugin: {config: {default: x}}}]}", "spec.nodePools",
		"set devicePlugin.config.name in the node pool or in the spec, or remove default",
	},
	{"time slices and MPS", "{sharing: {timeSlicing: {replicas: 2}, mps: {replicas: 2}}}", "spec.sharing", "exclude each other"},
	{"too many shares", "{sharing: {mps: {replicas: 1025}}}", "spec.sharing.mps.replicas", "less than or equal to 1024"},
	{"MPS of MIG devices", "{mig: {strategy: mixed}, sharing: {mps: {replicas: 2}}}", "spec.sharing.mps", "use timeSlicing"},
	{
		"shares of another resource", "{sharing: {timeSlicing: {resourceReplicas: [{name: nvidia.com/hostdev, replicas: 2}]}}}",
		"spec.sharing.timeSlicing.resourceReplicas[0].name", "",
	},
	{
		"sharing and a ConfigMap", "{sharing: {timeSlicing: {replicas: 2}}, devicePlugin: {config: {name: a}}}", "spec.sharing",
		"must not be set together with devicePlugin.config.name",
	},
	{
		"sharing and a ConfigMap in a pool",
		"{nodePools: [{name: a, nodeSelector: {a: b}, sharing: {}, devicePlugin: {config: {name: a}}}]}", "",
		"must not be set together with devicePlugin.config.name",
	},
	{"more nodes than 32 bits can count", "{driver: {upgradePolicy: {maxUnavailable: 99999999999}}}",
		"spec.driver.upgradePolicy.maxUnavailable", "less than or equal to 2147483647"},
	{"more nodes of a pool", "{nodePools: [{name: a, nodeSelector: {a: b}, driver: {upgradePolicy: {maxUnavailable: 2147483648}}}]}",
		"", "less than or equal to 2147483647"},
	{"fewer nodes of a pool", "{nodePools: [{name: a, nodeSelector: {a: b}, driver: {upgradePolicy: {maxUnavailable: -2147483649}}}]}",
		"", "greater than or equal to -2147483648"},
	{"more pods than 32 bits can count", "{daemonsets: {rollingUpdate: {maxUnavailable: 2147483648}}}",
		"spec.daemonsets.rollingUpdate.maxUnavailable", "less than or equal to 2147483647"},
	{"more nodes than 32 bits can count, in quotes", `{driver: {upgradePolicy: {maxUnavailable: "99999999999"}}}`,
		"spec.driver.upgradePolicy.maxUnavailable", "must be a number of at most 9 digits, or a percentage such as 25%"},
	{"more nodes of a pool, in quotes",
		`{nodePools: [{name: a, nodeSelector: {a: b}, driver: {upgradePolicy: {maxUnavailable: "2147483648"}}}]}`,
		"", "should match '^([0-9]{1,9}|[0-9]+%)$'"},
	{"more pods than 32 bits can count, in quotes", `{daemonsets: {rollingUpdate: {maxUnavailable: "99999999999"}}}`,
		"spec.daemonsets.rollingUpdate.maxUnavailable", "must be a number of at most 9 digits, or a percentage of 1% to 100%"},
	{"more GPUs than 32 bits can count, in quotes", `{health: {minUsable: "99999999999"}}`, "spec.health.minUsable",
		"must be a number of at most 9 digits, or a percentage of 0% to 100%"},
	{"more nodes that are acted on, in quotes", `{health: {actions: {maxNodes: "99999999999"}}}`,
		"spec.health.actions.maxNodes", "should match"},
	{"a quantity that is never decoded", `{driver: {resources: {limits: {cpu: "1e-99999999999"}}}}`,
		"spec.driver.resources.limits.cpu", "should match"},
	{"a quantity beyond what Kubernetes counts", `{driver: {resources: {limits: {memory: "1e99"}}}}`,
		"spec.driver.resources.limits.memory", "should match"},
	{"the same of a single container", `{driver: {containerResources: [{name: a, requests: {cpu: "1e999999999"}}]}}`,
		"", "should match"},
	{"a negative number of GPUs", "{health: {minUsable: -1}}", "spec.health.minUsable", "must not be negative"},
	{"an unknown action", "{health: {actions: {reset: drain}}}", "spec.health.actions.reset", "Unsupported value"},
	{"a negative number of nodes", "{health: {actions: {maxNodes: -1}}}", "spec.health.actions.maxNodes", "must not be negative"},
	{"a number of nodes beyond 32 bits", "{health: {actions: {maxNodes: 3000000000}}}", "spec.health.actions.maxNodes",
		"less than or equal to 2147483647"},
	{"such a number as text", `{health: {actions: {maxNodes: "3000000000"}}}`, "spec.health.actions.maxNodes", "should match"},
	{"a number of GPUs beyond 32 bits", "{health: {minUsable: 3000000000}}", "spec.health.minUsable",
		"less than or equal to 2147483647"},
	{"more than all nodes", `{health: {actions: {maxNodes: "101%"}}}`, "spec.health.actions.maxNodes", "should match"},
	{"a dwell that is no duration", "{health: {actions: {dwell: soon}}}", "spec.health.actions.dwell", "should match"},
	{"more than all GPUs", `{health: {minUsable: "101%"}}`, "spec.health.minUsable", "a percentage of 0% to 100%"},
	{
		"default MIG layout of a pool",
		`{nodePools: [{name: a, nodeSelector: {a: b}, migManager: {config: {default: "1g.10gb x 7"}}}]}`, "",
		"must be a MIG layout name",
	},
	{
		"no name of a ConfigMap", "{devicePlugin: {config: {name: Plugin_Config}}}", "spec.devicePlugin.config.name",
		"must be a lowercase RFC 1123 subdomain",
	},
	{"no name of a Secret", `{driver: {secretEnv: "a/b"}}`, "spec.driver.secretEnv", ""},
	{"no name of a PriorityClass", "{daemonsets: {priorityClassName: High}}", "spec.daemonsets.priorityClassName", ""},
	{
		"no name of a RuntimeClass", "{operator: {runtimeClass: nvidia.com}}", "spec.operator.runtimeClass",
		"must be a RuntimeClass and handler name",
	},
	{
		"no key of a ConfigMap", `{devicePlugin: {config: {name: a, default: "a/b"}}}`, "spec.devicePlugin.config.default",
		"must be a ConfigMap key",
	},
	{
		"a key of a ConfigMap that leaves its directory", `{global: {caBundle: {configMapName: a, key: "..a"}}}`,
		"spec.global.caBundle.key", "without '..' at the beginning",
	},
	{
		"a user that is no ID", "{daemonsets: {podSecurityContext: {runAsUser: -1}}}",
		"spec.daemonsets.podSecurityContext.runAsUser", "greater than or equal to 0",
	},
	{
		"a group that is no ID", "{daemonsets: {podSecurityContext: {supplementalGroups: [2147483648]}}}",
		"spec.daemonsets.podSecurityContext.supplementalGroups[0]", "less than or equal to 2147483647",
	},
	{
		"a type of seccomp profiles", "{daemonsets: {podSecurityContext: {seccompProfile: {type: Default}}}}",
		"spec.daemonsets.podSecurityContext.seccompProfile.type", `Unsupported value: "Default"`,
	},
	{
		"a policy of groups in a node pool", "{nodePools: [{name: a, nodeSelector: {a: b}, driver: {podSecurityContext: " +
			"{fsGroupChangePolicy: Never}}}]}",
		"spec.nodePools[0].driver.podSecurityContext.fsGroupChangePolicy", `Unsupported value: "Never"`,
	},
	{
		"default MIG layout", `{migManager: {config: {default: "1g.10gb x 7"}}}`, "spec.migManager.config.default",
		"must be a MIG layout name",
	},
	{"service type", "{dcgmExporter: {service: {type: ExternalName}}}", "spec.dcgmExporter.service.type", ""},
	{
		"traffic policy", "{dcgmExporter: {service: {internalTrafficPolicy: Remote}}}",
		"spec.dcgmExporter.service.internalTrafficPolicy", "",
	},
	{
		"scrape interval", "{dcgmExporter: {serviceMonitor: {interval: 15 seconds}}}",
		"spec.dcgmExporter.serviceMonitor.interval", "must be a Prometheus duration, such as 30s or 1m30s",
	},
	{
		"scrape time-out above the interval", "{dcgmExporter: {serviceMonitor: {interval: 15s, scrapeTimeout: 1m}}}",
		"spec.dcgmExporter.serviceMonitor.scrapeTimeout", "must not be longer than interval: lower it or raise interval",
	},
	{
		"relabeling action", "{operator: {metrics: {serviceMonitor: {relabelings: [{action: rename}]}}}}",
		"spec.operator.metrics.serviceMonitor.relabelings[0].action", "",
	},
	{
		"relabeling into no label", "{nodeStatusExporter: {serviceMonitor: {relabelings: [{sourceLabels: [a]}]}}}",
		"spec.nodeStatusExporter.serviceMonitor.relabelings[0]",
		"this action needs targetLabel: set it to the label to write",
	},
	{
		"relabeling by no modulus",
		"{nodeStatusExporter: {serviceMonitor: {relabelings: [{action: HashMod, targetLabel: a}]}}}", "",
		"the action hashmod needs a modulus above 0",
	},
	{
		"relabeling by no regular expression",
		"{nodeStatusExporter: {serviceMonitor: {relabelings: [{targetLabel: a, regex: '(a'}]}}}",
		"spec.nodeStatusExporter.serviceMonitor.relabelings[0].regex", "must be a regular expression in RE2 syntax",
	},
	{
		"allow list with no regular expression",
		"{dcgmExporter: {enablePodLabels: true, podLabelAllowlistRegex: ['^a', '[b']}}",
		"spec.dcgmExporter.podLabelAllowlistRegex[1]", "must be a regular expression in RE2 syntax",
	},
	{
		"deadline that is no time", "{deadlines: {driver: soon}}", "spec.deadlines.driver",
		"must be a duration from 1s to 168h, such as 1h30m, or 0s for no deadline",
	},
	{
		"deadline that is too short", "{deadlines: {allocatable: 999ms}}", "spec.deadlines.allocatable",
		"must be a duration from 1s to 168h",
	},
	{
		"deadline that is too long", "{deadlines: {other: 168h1s}}", "spec.deadlines.other",
		"must be a duration from 1s to 168h",
	},
	{
		"deadline before its time", "{deadlines: {validated: -1m}}", "spec.deadlines.validated",
		"must be a duration from 1s to 168h",
	},
	{
		"key of a label", `{daemonsets: {labels: {"a b": c}}}`, "spec.daemonsets.labels",
		"keys must be label keys, such as team or example.com/team",
	},
	{
		"value of a label", `{daemonsets: {labels: {a: "b c"}}}`, "spec.daemonsets.labels[a]",
		"must be letters and digits, with '-', '_' or '.' between them",
	},
	{
		"key of an annotation", `{dcgmExporter: {annotations: {"a/b/c": d}}}`, "",
		"keys must be annotation keys, such as note or example.com/note",
	},
	{
		"nodes that may be unavailable", "{driver: {upgradePolicy: {maxUnavailable: many}}}",
		"spec.driver.upgradePolicy.maxUnavailable", "must be a number of at most 9 digits, or a percentage such as 25%",
	},
	{
		"operator of a toleration", "{driver: {tolerations: [{key: a}, {key: b, operator: Exist}]}}",
		"spec.driver.tolerations[1].operator", `Unsupported value: "Exist"`,
	},
	{
		"effect of a toleration", "{daemonsets: {tolerations: [{operator: Exists, effect: NoStart}]}}",
		"spec.daemonsets.tolerations[0].effect", `Unsupported value: "NoStart"`,
	},
	{
		"key of a toleration", `{nodeDiscovery: {tolerations: [{key: "a b", operator: Exists}]}}`,
		"spec.nodeDiscovery.tolerations[0].key", "",
	},
	{
		"value of a toleration", `{gfd: {tolerations: [{key: a, value: "b c"}]}}`, "spec.gfd.tolerations[0].value", "",
	},
	{
		"toleration without a key", "{gfd: {tolerations: [{effect: NoSchedule}]}}", "spec.gfd.tolerations[0].operator",
		"must be Exists if key is empty",
	},
	{
		"toleration of any value with a value", "{daemonsets: {tolerations: [{key: a, operator: Exists, value: present}]}}",
		"spec.daemonsets.tolerations[0].value", "must be empty if operator is Exists",
	},
	{
		"toleration with an end that is no eviction",
		"{gfd: {tolerations: [{operator: Exists, effect: NoSchedule, tolerationSeconds: 60}]}}",
		"spec.gfd.tolerations[0].effect", "must be NoExecute if tolerationSeconds is set",
	},
	{
		"fewer than no upgrades", "{driver: {upgradePolicy: {maxParallelUpgrades: -1}}}",
		"spec.driver.upgradePolicy.maxParallelUpgrades", "",
	},
	{
		"time-out of a drain", "{driver: {upgradePolicy: {drain: {timeoutSeconds: -1}}}}",
		"spec.driver.upgradePolicy.drain.timeoutSeconds", "",
	},
	{
		"selector of pods", `{driver: {upgradePolicy: {waitForCompletion: {podSelector: "app:training"}}}}`,
		"spec.driver.upgradePolicy.waitForCompletion.podSelector",
		"must be a label selector, such as app=training,tier notin (test)",
	},
	{"workload", "{sandboxWorkloads: {defaultWorkload: vm}}", "spec.sandboxWorkloads.defaultWorkload", ""},
	{"mode of sandbox workloads", "{sandboxWorkloads: {mode: vmware}}", "spec.sandboxWorkloads.mode", ""},
	{
		"no image of the vGPU manager",
		"{sandboxWorkloads: {enabled: true}, vgpuManager: {enabled: true, image: vgpu-manager}}", "spec.vgpuManager",
		"there is no public vGPU manager image: set repository, image and version",
	},
	{"mode of confidential computing", "{ccManager: {defaultMode: strict}}", "spec.ccManager.defaultMode", ""},
	{
		"proxy with a space", `{global: {proxy: {httpProxy: "http://proxy.local 3128"}}}`, "spec.global.proxy.httpProxy",
		"must be a proxy address without spaces, such as http://proxy.local:3128",
	},
	{
		"taint of Kubernetes", "{nodeStartup: {taints: [{key: node.kubernetes.io/not-ready, effect: NoExecute}]}}",
		"spec.nodeStartup.taints[0].key",
		"is a taint of Kubernetes or Karpenter, which they remove themselves: use another key",
	},
	{
		"taint of Karpenter", "{nodeStartup: {taints: [{key: karpenter.sh/unregistered, effect: NoExecute}]}}",
		"spec.nodeStartup.taints[0].key", "is a taint of Kubernetes or Karpenter, which they remove themselves",
	},
	{
		"no key of a taint", "{nodeStartup: {taints: [{key: a b, effect: NoSchedule}]}}", "spec.nodeStartup.taints[0].key",
		"must be a taint key, such as example.com/gpu-starting",
	},
	{"taint without an effect", "{nodeStartup: {taints: [{key: a}]}}", "spec.nodeStartup.taints[0].effect", ""},
	{
		"effect of a taint",
		"{nodeStartup: {taints: [{key: a, effect: Evict}]}}",
		"spec.nodeStartup.taints[0].effect",
		"",
	},
	{
		"duplicate taint",
		"{nodeStartup: {taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]}}",
		"spec.nodeStartup.taints[1]", "Duplicate value",
	},
	{
		"taint on failure without a taint", "{nodeStartup: {onFailure: taint}}", "spec.nodeStartup.onFailure",
		"the value taint needs a taint with the effect NoSchedule in taints: add one, or set report",
	},
	{
		"taint on failure that would evict", "{nodeStartup: {onFailure: taint, taints: [{key: a, effect: NoExecute}]}}",
		"spec.nodeStartup.onFailure", "the value taint needs a taint with the effect NoSchedule",
	},
	{"on failure", "{nodeStartup: {onFailure: evict}}", "spec.nodeStartup.onFailure", ""},
	{
		"no grace period", `{nodeDiscovery: {gracePeriod: "0s"}}`, "spec.nodeDiscovery.gracePeriod",
		"must be a duration from 1s to 168h, such as 10m",
	},
	{
		"grace period of a month", "{nodeDiscovery: {gracePeriod: 720h}}", "spec.nodeDiscovery.gracePeriod",
		"must be a duration from 1s to 168h",
	},
	{
		"grace period in days", "{nodeDiscovery: {gracePeriod: 1d}}", "spec.nodeDiscovery.gracePeriod",
		"must be a duration from 1s to 168h",
	},
	{
		"registry of a mirror", `{global: {registry: "https://mirror.local"}}`, "spec.global.registry",
		"must be a registry host with a dot or a port",
	},
}

// accepted are specs that NVIDIA's operator reconciles to ready, all of whose keys are known here.
var accepted = map[string]string{
	"what NVIDIA's chart writes": `
    operator: {defaultRuntime: docker, runtimeClass: nvidia, initContainer: {}, annotations: {openshift.io/scc: restricted-readonly}}
    daemonsets: {tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}], priorityClassName: system-node-critical, updateStrategy: RollingUpdate, rollingUpdate: {maxUnavailable: "1"}}
    validator: {repository: nvcr.io/nvidia, image: gpu-operator, version: v26.7.0, imagePullPolicy: IfNotPresent, plugin: {env: []}}
    mig: {strategy: single}
    cdi: {enabled: true, nriPluginEnabled: false}
    driver: {enabled: true, usePrecompiled: false, kernelModuleType: auto, repository: nvcr.io/nvidia, image: driver, version: 595.91.07, imagePullPolicy: IfNotPresent, startupProbe: {failureThreshold: 120, initialDelaySeconds: 60, periodSeconds: 10, timeoutSeconds: 60}, rdma: {enabled: false, useHostMofed: false}, manager: {repository: nvcr.io/nvidia/cloud-native, image: k8s-driver-manager, version: v0.12.0, imagePullPolicy: IfNotPresent}, repoConfig: {configMapName: ""}, certConfig: {name: ""}, licensingConfig: {secretName: "", nlsEnabled: true}, virtualTopology: {config: ""}, kernelModuleConfig: {name: ""}, secretEnv: "", hostNetwork: false, upgradePolicy: {autoUpgrade: true, maxParallelUpgrades: 1, maxUnavailable: 25%, waitForCompletion: {timeoutSeconds: 0, podSelector: ""}, podDeletion: {force: false, timeoutSeconds: 300, deleteEmptyDir: false}, drain: {enable: false, force: false, podSelector: "", timeoutSeconds: 300, deleteEmptyDir: false}}}
    toolkit: {enabled: true, repository: nvcr.io/nvidia/k8s, image: container-toolkit, version: v1.20.0, imagePullPolicy: IfNotPresent, installDir: /usr/local/nvidia, hostNetwork: false}
    devicePlugin: {enabled: true, repository: nvcr.io/nvidia, image: k8s-device-plugin, version: v0.20.0, imagePullPolicy: IfNotPresent, hostNetwork: false, config: {name: "", default: ""}}
    dcgm: {enabled: false, repository: nvcr.io/nvidia/cloud-native, image: dcgm, version: 4.6.0-1-ubuntu24.04, imagePullPolicy: IfNotPresent, hostNetwork: false}
    dcgmExporter: {enabled: true, repository: nvcr.io/nvidia/k8s, image: dcgm-exporter, version: 4.6.0-4.8.3-distroless, imagePullPolicy: IfNotPresent, hostPID: false, hostNetwork: false, enablePodLabels: false, enablePodUID: false, service: {internalTrafficPolicy: Cluster}, serviceMonitor: {enabled: true, interval: 15s, scrapeTimeout: 10s, honorLabels: false, additionalLabels: {}, relabelings: []}}
    gfd: {enabled: true, repository: nvcr.io/nvidia, image: k8s-device-plugin, version: v0.20.0, imagePullPolicy: IfNotPresent, hostNetwork: false}
    migManager: {enabled: true, repository: nvcr.io/nvidia/cloud-native, image: k8s-mig-manager, version: v0.15.0, imagePullPolicy: IfNotPresent, hostNetwork: false, config: {name: "", default: all-disabled}, gpuClientsConfig: {name: ""}}
    nodeStatusExporter: {enabled: false, repository: nvcr.io/nvidia, image: gpu-operator, version: v26.7.0, imagePullPolicy: IfNotPresent, hostNetwork: false}
    gds: {enabled: false, repository: nvcr.io/nvidia/cloud-native, image: nvidia-fs, version: "2.29.4", imagePullPolicy: IfNotPresent}
    gdrcopy: {enabled: false, repository: nvcr.io/nvidia/cloud-native, image: gdrdrv, version: v2.6, imagePullPolicy: IfNotPresent}
    psa: {enabled: false}
    sandboxWorkloads: {enabled: false, defaultWorkload: container, mode: kubevirt}
    vgpuManager: {enabled: false, image: vgpu-manager, imagePullPolicy: IfNotPresent, driverManager: {repository: nvcr.io/nvidia/cloud-native, image: k8s-driver-manager, version: v0.12.0, imagePullPolicy: IfNotPresent}, kernelModuleConfig: {name: ""}}
    vgpuDeviceManager: {enabled: true, repository: nvcr.io/nvidia/cloud-native, image: vgpu-device-manager, version: v0.5.0, imagePullPolicy: IfNotPresent, config: {default: default, name: ""}}
    vfioManager: {enabled: true, repository: nvcr.io/nvidia/cloud-native, image: k8s-driver-manager, version: v0.12.0, imagePullPolicy: IfNotPresent, driverManager: {repository: nvcr.io/nvidia/cloud-native, image: k8s-driver-manager, version: v0.12.0, imagePullPolicy: IfNotPresent}}
    kataManager: {enabled: false, config: {}}
    sandboxDevicePlugin: {enabled: true, repository: nvcr.io/nvidia, image: kubevirt-gpu-device-plugin, version: v1.6.0, imagePullPolicy: IfNotPresent}
    kataSandboxDevicePlugin: {enabled: true, repository: nvcr.io/nvidia/cloud-native, image: nvidia-sandbox-device-plugin, version: v0.0.5, imagePullPolicy: IfNotPresent}
    ccManager: {enabled: true, defaultMode: "on", repository: nvcr.io/nvidia/cloud-native, image: k8s-cc-manager, version: v0.4.3, imagePullPolicy: IfNotPresent}
    hostPaths: {rootFS: /, driverInstallDir: /run/nvidia/driver}`,
	"every optional part in use": `
    operator: {use_ocp_driver_toolkit: true, labels: {a: b}, metrics: {serviceMonitor: {enabled: true, interval: 1m30s, relabelings: [{sourceLabels: [__meta_kubernetes_pod_node_name], separator: ";", regex: ^(.*)$, targetLabel: nodename, replacement: $1, action: replace}, {sourceLabels: [a], modulus: 8, targetLabel: b, action: HashMod}]}}}
    driver: {livenessProbe: {periodSeconds: 30, successThreshold: 1}, readinessProbe: {successThreshold: 3}, useOpenKernelModules: true, rdma: {useHostMofed: true}, repoConfig: {configMapName: repo-config}, certConfig: {name: certs.example.com}, virtualTopology: {config: topology}, kernelModuleConfig: {name: kernel-module-params}, secretEnv: ubuntu-pro, upgradePolicy: {maxParallelUpgrades: 0, maxUnavailable: 0, waitForCompletion: {podSelector: "app in (a,b),!c", timeoutSeconds: 60}}}
    devicePlugin: {config: {name: time-slicing-config-all, default: Tesla-T4_any.v1}, mps: {root: /var/run/mps}}
    dcgm: {enabled: true, hostPort: 5555}
    dcgmExporter: {args: [-f, /etc/dcgm-exporter/x.csv], annotations: {a.example.com/b: c}, config: {name: metrics-config}, service: {type: NodePort, internalTrafficPolicy: Local}, hostPID: true, hpcJobMapping: {enabled: true, directory: /var/lib/jobs}, enablePodLabels: true, enablePodUID: true, podLabelAllowlistRegex: ["^app$", "^team-.*"]}
    nodeStatusExporter: {enabled: true, serviceMonitor: {enabled: false}}
    migManager: {config: {name: custom-mig-parted-config}, gpuClientsConfig: {name: clients}}
    gds: {enabled: true, args: [a], env: [{name: A, value: b}]}
    gdrcopy: {enabled: true, image: "example.com/gdrdrv@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
    psa: {enabled: true}
    psp: {enabled: true}
    sandboxWorkloads: {enabled: true, defaultWorkload: vm-vgpu, mode: kata}
    ccManager: {enabled: true, defaultMode: ppcie, env: [{name: EVICT_OPERATOR_COMPONENTS, value: "true"}], hostNetwork: true}
    kataSandboxDevicePlugin: {enabled: true, env: [{name: P_GPU_ALIAS}]}
    vgpuManager: {enabled: true, repository: "registry.example.com:5000/nvidia", image: vgpu-manager, version: 595.58.02, driverManager: {env: [{name: A, value: b}]}, kernelModuleConfig: {name: params}}
    vgpuDeviceManager: {config: {name: vgpu, default: A10-4Q}}
    vfioManager: {resources: {limits: {memory: 200Mi}, requests: {cpu: 100m, memory: 200Mi}}}
    kataManager: {enabled: true, config: {artifactsDir: /opt/nvidia-gpu-operator/artifacts/runtimeclasses, runtimeClasses: [{name: kata-nvidia-gpu, nodeSelector: {a: b}, artifacts: {url: "nvcr.io/a:b", pullSecret: ""}}]}}
    validator: {vfioPCI: {env: [{name: A}]}, vgpuManager: {env: [{name: A}]}, vgpuDevices: {env: [{name: A}]}}
    hostPaths: {kubeletRootDir: /data/kubelet}`,
	"every extension in use": `
    paused: true
    global: {registry: "mirror.local:5000/proxy", imagePullSecrets: [mirror-login], proxy: {httpProxy: "http://proxy.local:3128", httpsProxy: "proxy.local:3129", noProxy: "10.0.0.0/8, .local"}, caBundle: {configMapName: authorities, key: all.pem}}
    daemonsets: {nodeSelector: {example.com/pool: gpu}}
    nodeDiscovery: {nodeSelector: {a: ""}, tolerations: [{operator: Exists}]}
    deadlines: {discovered: 1s, driver: 1h30m, toolkit: 168h, devicePlugin: 0s, allocatable: 1.5m, validated: "", other: null}
    driver: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], labels: {a: b}, annotations: {a: b}, priorityClassName: gpu, containerResources: [{name: k8s-driver-manager, limits: {memory: 1Gi}, requests: {cpu: 10m}}, {name: nvidia-driver-ctr}]}`,
	"registries of mirrors": `{global: {registry: "localhost/a/"}}`,
	"the older module, for which the closed modules do": `{driver: {kernelModuleType: proprietary}, gds: {enabled: ` +
		`true, version: "2.16.1"}}`,
	"files that are kept for later": `{dcgmExporter: {hpcJobMapping: {enabled: false, ` +
		`directory: /var/lib/jobs}, enablePodLabels: false, podLabelAllowlistRegex: [a]}}`,
	"registries, tags and digests of all forms": `{driver: {repository: "[fd00::1]:5000/a/b_c", version: ` +
		`595.58.02-5.15.0-70-generic}, toolkit: {repository: localhost, version: ` +
		`"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}, gfd: {image: ` +
		`"sub.example.com:5000/a/b:c"}, dcgm: {repository: "", version: ""}}`,
	"resources of which some have no limit, or are equal": `{driver: {resources: {limits: {cpu: 1, memory: 1Gi, ` +
		`"example.com/a": 1}, requests: {cpu: 1000m, ephemeral-storage: 1Gi}}}}`,
	"names that only newer versions of Kubernetes take": `{driver: {env: [{name: "a b/c"}]}}`,
	"labels at their bounds": `{daemonsets: {labels: {a.b-c.example.com/A_1.b: "", x: ` +
		`A_1.b}, annotations: {Example.com/note: "any text: {}"}}}`,
	"a licence as Secret and as ConfigMap: the Secret wins": `{driver: {licensingConfig: {secretName: licence, ` +
		`configMapName: licence}}}`,
	"precompiled, where the driver is that of the host": `{driver: {enabled: false, usePrecompiled: true}, gds: ` +
		`{enabled: true}, gdrcopy: {enabled: true}}`,
	"precompiled, without the sidecars": `{driver: {usePrecompiled: true, version: "595"}, gds: {enabled: false}, ` +
		`gdrcopy: {}}`,
	"pools with all that they can say": `{devicePlugin: {config: {name: a}}, nodePools: [{name: a-1, nodeSelector: {example.com/a: b}, driver: {version: "595", usePrecompiled: true,
      kernelModuleType: open, kernelModuleConfig: {name: a}, upgradePolicy: {autoUpgrade: true, maxUnavailable: 2}}, toolkit: {version: v1}, devicePlugin: {config: {default: x}},
      mig: {strategy: mixed}, migManager: {config: {default: all-1g.10gb}}}, {name: b, nodeSelector: {a: b}, devicePlugin: {config: {name: b, default: z}}}]}`,
	"pools with blocks that are null": "{nodePools: [{name: a, nodeSelector: {a: b}, " +
		"driver: null, toolkit: null, devicePlugin: {config: null}, mig: null, migManager: {config: {}}}]}",
	"a precompiled pool of hosts with drivers": "{driver: {enabled: false}, gds: {enabled: " +
		"true}, nodePools: [{name: a, nodeSelector: {a: b}, driver: {usePrecompiled: true}}]}",
	"precompiled, beside blocks that are null": `{driver: {usePrecompiled: true, rdma: null}, ` +
		`gds: null, gdrcopy: {enabled: null}}`,
	"the network driver of the host without RDMA, which has no effect": `{driver: {rdma: {enabled: false, useHostMofed: ` +
		`true}}}`,
}
