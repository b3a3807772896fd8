package preview

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// Parts of the file with the cluster.
const (
	container = `{name: gpu-operator, image: example.com/operator:1, args: [--leader-elect], ` +
		`env: [{name: OPERATOR_IMAGE}]}`
	deployed  = "{app.kubernetes.io/component: gpu-operator}}\n      spec: {containers"
	firstNode = "metadata: &gpu"
	nextNodes = "metadata: {<<: *gpu,"
	cordon    = "spec: {unschedulable: true}"
)

// annotated gives the first node annotations, and uncordons the others.
func annotated(annotations string) []string {
	return []string{
		firstNode, firstNode + "\n    annotations: {" + annotations + "}", nextNodes, nextNodes + " annotations: {},",
		cordon, "spec: {}",
	}
}

var previewCases = map[string]previewCase{
	"nothing-changes":           {to: spec1},
	"the-policy-in-the-cluster": {},
	"rounds": {
		to: `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxParallelUpgrades: 2, maxUnavailable: 3,
			waitForCompletion: {podSelector: app=web}, podDeletion: {force: true}}}}`,
		added: `
- apiVersion: v1
  kind: Pod
  metadata: {namespace: team-a, name: pending, uid: p1, labels: {app: web},
    ownerReferences: &job [{kind: Job, name: j, uid: j, controller: true}]}
  spec: &gpu {nodeName: gpu-1, containers: [{name: c, resources: {limits: {nvidia.com/gpu: "1"}}}]}
  status: {phase: Pending}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: team-a, name: ending, uid: p2, deletionTimestamp: "2026-01-02T03:04:00Z", ownerReferences: *job}
  spec: *gpu
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: team-d, name: web, uid: p3, labels: {app: notebook}, ownerReferences: *job}
  spec: *gpu
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: team-c, name: by-claim, uid: c1, ownerReferences: *job}
  spec: {nodeName: gpu-1, containers: [{name: c}], resourceClaims: [{name: one, resourceClaimName: gpu}]}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: team-c, name: with-nic, uid: c2, ownerReferences: *job}
  spec: {nodeName: gpu-1, containers: [{name: c}], resourceClaims: [{name: one, resourceClaimName: nic}]}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {namespace: team-c, name: gpu}
  status: {allocation: {devices: {results: [{request: one, driver: gpu.nvidia.com, pool: a, device: d}]}}}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {namespace: team-c, name: nic}
  status: {allocation: {devices: {results: [{request: one, driver: dra.net, pool: a, device: d}]}}}
`,
	},
	"budgets-of-node-pools": {to: `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}},
		nodePools: [{name: rear, nodeSelector: {zone: rear}, driver: {upgradePolicy: {maxUnavailable: 1}}}]}`},
	"upgrades-by-hand": {to: `{driver: {version: "580.2"}}`},
	"a-node-is-requested": {
		to:       `{driver: {version: "580.2", upgradePolicy: {maxUnavailable: 2}}}`,
		replaced: annotated(`nvidia.com/gpu-driver-upgrade-requested: "true"`),
	},
	"an-upgrade-runs": {to: spec2, replaced: annotated("nvidia.com/gpu-operator.driver-upgrade: " +
		`'{"uid":"node-1","round":1,"state":"pod-deletion-required","cordoned":true}'`)},
	"a-record-is-unreadable": {to: spec2, replaced: annotated("nvidia.com/gpu-operator.driver-upgrade: what")},
	"the-policy-pauses":      {to: `{paused: true, driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}}}`},
	"scheduling-only": {to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		daemonsets: {priorityClassName: high, tolerations: [{key: a, operator: Exists}], updateStrategy: RollingUpdate}}`},
	"exporter-disabled": {to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		dcgmExporter: {enabled: false}}`},
	"another-toolkit": {to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		toolkit: {version: v1.2.3}, devicePlugin: {env: [{name: A, value: b}]}}`},
	"content-was-not-read": {
		to: `{driver: {version: "580.1", secretEnv: token, upgradePolicy: {autoUpgrade: true}},
			daemonsets: {priorityClassName: high}, devicePlugin: {config: {name: plugin, default: a}}}`,
		change: func(c *Cluster) { delete(c.Read, "ConfigMap") },
	},
	"content-was-read": {
		to: `{driver: {version: "580.1", secretEnv: token, upgradePolicy: {autoUpgrade: true}},
			daemonsets: {priorityClassName: high}, devicePlugin: {config: {name: plugin, default: a}}}`,
		named: `
- apiVersion: v1
  kind: Secret
  metadata: {name: token}
  data: {A: Yg==}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: plugin, namespace: gpu-operator}
  data: {a: "version: v1"}
- apiVersion: scheduling.k8s.io/v1
  kind: PriorityClass
  metadata: {name: high}
`,
	},
	"missing": {
		to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
			devicePlugin: {config: {name: plugin, default: a}}}`,
		named: `
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: plugin, namespace: other}
  data: {a: "version: v1"}
`,
	},
	"first-installation": {
		from: "none", to: `{driver: {version: "580.1"}, toolkit: {enabled: false}, gfd: {enabled: false},
			migManager: {enabled: false}, dcgmExporter: {serviceMonitor: {enabled: true}}}`,
		replaced: []string{"nvidia.com/gpu-operator.pool: ubuntu24.04-amd64\n", "note: none\n"},
		change: func(c *Cluster) {
			c.CRDs["servicemonitors.monitoring.coreos.com"] = true
			c.Read["ServiceMonitor"] = true
		},
	},
	"kinds-that-were-not-read": {
		from: "none", to: `{driver: {version: "580.1"}, toolkit: {enabled: false}, gfd: {enabled: false},
			migManager: {enabled: false}, dcgmExporter: {serviceMonitor: {enabled: true}}}`,
		change: func(c *Cluster) { c.CRDs, c.Read = nil, map[string]bool{"DaemonSet": true, "ServiceMonitor": true} },
	},
	"no-operator": {to: spec1, replaced: []string{deployed, "{}}\n      spec: {containers"}},
	"another-operator": {
		to: spec1, replaced: []string{
			container, `{name: gpu-operator, image: "example.com/operator:3", args: [--metrics-secure=false],
            envFrom: [{configMapRef: {name: images}}, {secretRef: {name: passwords}}], env: [{name: OPERATOR_IMAGE},
              {name: DRIVER_IMAGE, value: a.example/driver:1}, {name: DRIVER_IMAGE, value: b.example/driver:2},
              {name: DEVICE_PLUGIN_IMAGE, valueFrom: {configMapKeyRef: {name: images, key: plugin}}},
              {name: OPERATOR_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}},
              {name: DCGM_EXPORTER_IMAGE, value: a.example/other:1}, {name: HTTPS_PROXY, value: "http://proxy"}]},
            {name: other, image: "example.com/other:1"}`,
		},
	},
	"helpers-of-another-image": {
		to: spec2, replaced: []string{
			container, `{name: gpu-operator, image: "example.com/operator:3", args: [--leader-elect, --metrics-cert-dir=/certs],
            env: [{name: OPERATOR_IMAGE, value: "example.com/helpers:1"}]}`,
		},
	},
	"one-node-keeps-the-device-plugin": {
		to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}, devicePlugin: {nodeSelector: {zone: rear}}}`,
	},
	"the-device-plugin-is-off": {
		to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}, devicePlugin: {enabled: false}}`,
	},
	"beside-nvidias": {to: spec2, change: func(c *Cluster) {
		policy := of[*v1.ClusterPolicy](c)[0]
		policy.Status.Conditions = []metav1.Condition{
			{Type: v1.ConditionOtherOperatorRunning, Status: metav1.ConditionTrue, Message: "gpu-operator/theirs runs"},
		}
	}},
	"handed-over": {to: spec1, added: theirs("same", "580.1") + theirs("older", "570.1") +
		strings.Replace(theirs("plain", "580.1"), "component: nvidia-driver", "component: other", 1) +
		strings.Replace(theirs("of-others", "580.1"), "uid: policy", "uid: other", 1) +
		strings.Replace(theirs("in-other", "580.1"), "namespace: gpu-operator", "namespace: other", 1)},
	"adopted": {
		to: spec1, added: strings.Replace(theirs("x", "570.1"), "nvidia-driver-x", "nvidia-driver-daemonset", 3),
		change: remove("nvidia-driver-daemonset"),
	},
	"adopted-with-the-same-driver": {
		to: spec1, added: strings.Replace(theirs("x", "580.1"), "nvidia-driver-x", "nvidia-driver-daemonset", 3),
		change: remove("nvidia-driver-daemonset"),
	},
	"of-others": {
		to: spec1, added: strings.Replace(strings.Replace(theirs("x", "580.1"), "nvidia-driver-x", "nvidia-dcgm-exporter", 3),
			"uid: policy", "uid: other", 1),
		change: remove("nvidia-dcgm-exporter"),
	},
	"pods-are-left": {
		to: spec1, change: remove("nvidia-driver-daemonset"),
	},
	"another-system":        {to: spec1, change: withSystem("rear", "rhel", "9.6")},
	"the-last-node-moves":   {to: spec1, change: withSystem("", "rhel", "9.6")},
	"an-unsupported-system": {to: `{driver: {version: "580", usePrecompiled: true}}`, change: withSystem("rear", "", "")},
	"openshift-was-not-read": {
		to: spec1, in: operand.Input{OpenShiftCluster: operand.OpenShiftCluster{
			Version: "4.18.12", Proxy: v1.ProxySpec{HTTPSProxy: "http://proxy:3128"},
		}},
	},
	"openshift": {
		to: spec1, in: operand.Input{OpenShiftCluster: operand.OpenShiftCluster{
			Version: "4.18.12", Proxy: v1.ProxySpec{HTTPSProxy: "http://proxy:3128"},
		}}, added: `
- apiVersion: config.openshift.io/v1
  kind: Proxy
  metadata: {name: cluster}
  status: {httpsProxy: "http://proxy:3128"}
- apiVersion: config.openshift.io/v1
  kind: ClusterVersion
  metadata: {name: version}
  status: {history: [{state: Completed, version: 4.18.12}]}
`,
	},
	"driver-toolkit": {
		from: `{driver: {version: "580.1"}}`, to: `{driver: {version: "580.1"}}`,
		replaced: []string{`ID: ubuntu
      feature.node.kubernetes.io/system-os_release.VERSION_ID: "24.04"`, `ID: rhcos
      feature.node.kubernetes.io/system-os_release.VERSION_ID: "4.18"
      feature.node.kubernetes.io/system-os_release.OSTREE_VERSION: 418.94.1-0`},
		added: imageStream("driver-toolkit", "openshift", "a") + imageStream("other", "openshift", "b") +
			imageStream("driver-toolkit", "other", "c"),
	},
	"nvidia-drivers": {
		to: `{driver: {useNvidiaDriverCRD: true}}`, named: driverObject("front", "front", "580.2") +
			driverObject("wrong", "rear", "580.2") + "    image: example.com/driver:1\n    useOpenKernelModules: true\n",
		added: driverObject("front", "front", "580.1") + driverObject("rear", "rear", "580.3"),
	},
	"nvidia-drivers-without-effect": {to: spec1, named: driverObject("front", "front", "580.2")},
	"nvidia-drivers-were-not-read":  {to: `{driver: {useNvidiaDriverCRD: true}}`},
	"no-nvidia-driver": {
		to: `{driver: {useNvidiaDriverCRD: true}}`, change: func(c *Cluster) { c.Read["NVIDIADriver"] = true },
	},
	"invalid": {
		to: `{driver: {image: "example.com/driver:1", version: "2"}, dcgm: {image: "example.com/dcgm:1", version: "2"}}`,
	},
	"refused-node-pools": {to: `{driver: {version: "580.1"}, nodePools: [
		{name: one, nodeSelector: {zone: rear}, driver: {usePrecompiled: true, version: "580.3"}},
		{name: two, nodeSelector: {zone: front}, driver: {version: "580.4"}}]}`},
	"slots": {
		to:       `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 1}}}`,
		replaced: []string{cordon, "spec: {}"},
		added: `
- apiVersion: v1
  kind: ConfigMap
  metadata: {namespace: gpu-operator, name: other}
  data: {node-4: "{}"}
- apiVersion: v1
  kind: ConfigMap
  metadata: {namespace: gpu-operator, name: gpu-operator-driver-upgrades}
  data: {gpu-2: '{"uid":"node-2"}'}
`,
	},
	"nvidia-drivers-in-conflict": {
		to: `{driver: {useNvidiaDriverCRD: true}}`, named: driverObject("one", "rear", "580.2"),
		added: driverObject("two", "rear", "580.1"),
	},
	"not-rendered": {to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		dcgmExporter: {hostNetwork: true},
		daemonsets: {podSecurityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}]}}}`},
	"metrics-of-a-private-authority": {
		to: spec1, replaced: []string{"args: [--leader-elect]",
			"args: [--metrics-secure=true, --metrics-cert-dir=/certs, --metrics-ca-secret=authority]"},
		change: func(c *Cluster) { c.CRDs["servicemonitors.monitoring.coreos.com"] = true },
	},
	"the-spec-is-recorded": {to: spec1, in: operand.Input{AppliedSpec: "one"}},
	"fields-that-are-not-set": {
		to: spec1, change: func(c *Cluster) {
			for _, ds := range inNamespace[*appsv1.DaemonSet](c) {
				switch ds.Name {
				case "nvidia-device-plugin-daemonset":
					// As another release has written it.
					ds.Annotations[labels.Digest] = "earlier"
				case "gpu-feature-discovery":
					ds.Annotations[labels.TemplateDigest] = "earlier"
				case "nvidia-driver-daemonset":
					ds.Spec.MinReadySeconds++
				}
			}
		},
	},
	"gpus-are-not-ready": {
		to: `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 2}}}`,
		replaced: []string{"nvidia.com/GPUReady, status: \"True\"", "nvidia.com/GPUReady, status: \"False\"",
			cordon, "spec: {}"},
	},
	"unhealthy-pods": {
		to: `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 3}}}`,
		replaced: []string{"status: &running {phase: Running, conditions: [{type: Ready, status: \"True\"}]}",
			"status: &running {phase: Running}"},
		added: `
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {namespace: team-b, name: always}
  spec: {selector: {}, unhealthyPodEvictionPolicy: AlwaysAllow}
  status: {disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 1}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {namespace: team-a, name: allows}
  spec: {selector: {matchLabels: {app: allowed}}}
  status: {disruptionsAllowed: 1, currentHealthy: 0, desiredHealthy: 1}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {namespace: team-a, name: unhealthy}
  spec: {selector: {matchLabels: {app: unhealthy}}, unhealthyPodEvictionPolicy: IfHealthyBudget}
  status: {disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 1}
` + userPod("allowed") + userPod("unhealthy"),
	},
	"rolling-updates": {to: `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		daemonsets: {rollingUpdate: {maxUnavailable: "2"}}}`},
	"service-monitors": {
		from: `{dcgmExporter: {serviceMonitor: {enabled: true}}}`, to: `{}`,
		in: operand.Input{Optional: map[operand.OptionalKind]bool{operand.ServiceMonitor: true}},
		change: func(c *Cluster) {
			c.CRDs["servicemonitors.monitoring.coreos.com"], c.Read["ServiceMonitor"] = true, true
		},
	},
	"service-monitors-that-are-not-served": {
		from: `{dcgmExporter: {serviceMonitor: {enabled: true}}}`, to: `{}`,
		in: operand.Input{Optional: map[operand.OptionalKind]bool{operand.ServiceMonitor: true}},
	},
	"the-name-is-in-use": {to: spec1, change: func(c *Cluster) {
		remove("nvidia-driver-daemonset")(c)
		toRHEL(c)
	}},
	"the-name-is-of-another-system": {to: spec1, added: strings.Replace(
		theirs("daemonset", "580.1"), "metadata: {labels: {",
		"metadata: {labels: {nvidia.com/gpu-operator.pool: ubuntu24.04-amd64, ", 1),
		change: func(c *Cluster) {
			remove("nvidia-driver-daemonset")(c)
			toRHEL(c)
			c.Objects = slices.DeleteFunc(c.Objects, func(object manifest.Object) bool {
				return object.GetNamespace() == namespace && object.GetLabels()[labels.Operand] == "driver"
			})
		}},
	"beside-a-second-policy": {to: spec2, added: `
- apiVersion: nvidia.com/v1
  kind: ClusterPolicy
  metadata: {name: second, uid: second}
`},
	"a-policy-that-is-deleted": {to: spec1, change: func(c *Cluster) {
		of[*v1.ClusterPolicy](c)[0].DeletionTimestamp = &metav1.Time{Time: now}
	}},
}

// remove removes a DaemonSet of the stack.
func remove(name string) func(*Cluster) {
	return func(c *Cluster) {
		c.Objects = slices.DeleteFunc(c.Objects, func(object manifest.Object) bool {
			return object.GetObjectKind().GroupVersionKind().Kind == "DaemonSet" && object.GetName() == name &&
				object.GetNamespace() == namespace && object.GetAnnotations()[labels.Digest] != ""
		})
	}
}

// toRHEL gives the node of zone rear another system, and its labels.
func toRHEL(c *Cluster) {
	withSystem("rear", "rhel", "9.6")(c)
	for _, node := range of[*corev1.Node](c) {
		if node.Labels["zone"] == "rear" {
			node.Labels[labels.Pool], node.Labels[labels.DriverAnchor] = "rhel9-amd64", "rhel9-amd64"
		}
	}
}

// withSystem changes the operating system of the GPU nodes of a zone, or of all.
func withSystem(zone, id, version string) func(*Cluster) {
	return func(c *Cluster) {
		for _, node := range of[*corev1.Node](c) {
			if node.Labels["zone"] == "" || zone != "" && node.Labels["zone"] != zone {
				continue
			}
			node.Labels["feature.node.kubernetes.io/system-os_release.ID"] = id
			node.Labels["feature.node.kubernetes.io/system-os_release.VERSION_ID"] = version
		}
	}
}

// theirs is a driver DaemonSet of NVIDIA's operator with a version of the driver.
func theirs(name, version string) string {
	return strings.NewReplacer("NAME", name, "VERSION", version).Replace(`
- apiVersion: apps/v1
  kind: DaemonSet
  metadata:
    namespace: gpu-operator
    name: nvidia-driver-NAME
    labels: {app: nvidia-driver-NAME, app.kubernetes.io/component: nvidia-driver}
    annotations: {nvidia.com/last-applied-hash: "1"}
    ownerReferences:
      - {apiVersion: nvidia.com/v1, kind: ClusterPolicy, name: cluster-policy, uid: policy, controller: true}
  spec:
    selector: {matchLabels: {app: nvidia-driver-NAME}}
    template:
      metadata: {labels: {app: nvidia-driver-NAME}}
      spec:
        containers:
          - name: nvidia-driver-ctr
            image: nvcr.io/nvidia/driver:VERSION-ubuntu24.04
            command: [nvidia-driver, init]
            env: [{name: KERNEL_MODULE_TYPE, value: auto}]
  status: {currentNumberScheduled: 2}
`)
}

// userPod is a pod with a GPU that is not ready, with its name as label.
func userPod(name string) string {
	return strings.ReplaceAll(`
- apiVersion: v1
  kind: Pod
  metadata: {namespace: team-a, name: NAME, uid: NAME, labels: {app: NAME}, ownerReferences: [
    {kind: Job, name: j, uid: j, controller: true}]}
  spec: {nodeName: gpu-1, containers: [{name: c, resources: {limits: {nvidia.com/gpu: "1"}}}]}
  status: {phase: Running}
`, "NAME", name)
}

// imageStream is one of OpenShift with an image for a release of Red Hat CoreOS.
func imageStream(name, namespace, image string) string {
	return strings.NewReplacer("NAME", name, "SPACE", namespace, "IMAGE", image).Replace(`
- apiVersion: image.openshift.io/v1
  kind: ImageStream
  metadata: {namespace: SPACE, name: NAME}
  spec: {tags: [{name: 418.94.1-0, from: {kind: DockerImage, name: "example.com/IMAGE:1"}}]}
`)
}

// driverObject is an NVIDIADriver for the nodes of a zone.
func driverObject(name, zone, version string) string {
	return strings.NewReplacer("NAME", name, "ZONE", zone, "VERSION", version).Replace(`
- apiVersion: nvidia.com/v1alpha1
  kind: NVIDIADriver
  metadata: {name: NAME, uid: NAME}
  spec:
    nodeSelector: {zone: ZONE}
    version: "VERSION"
`)
}
