package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAPI: the API server refuses what is wrong and names the field; what is left out, empty or null
// means the defaults.
func TestAPI(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	for name, c := range map[string]struct{ spec, path string }{
		"kernel module type":          {`{driver: {kernelModuleType: closed}}`, "spec.driver.kernelModuleType"},
		"pull policy":                 {`{driver: {imagePullPolicy: Sometimes}}`, "spec.driver.imagePullPolicy"},
		"pull policy of the manager":  {`{driver: {manager: {imagePullPolicy: always}}}`, "spec.driver.manager.imagePullPolicy"},
		"MIG strategy":                {`{mig: {strategy: double}}`, "spec.mig.strategy"},
		"update strategy":             {`{daemonsets: {updateStrategy: Recreate}}`, "spec.daemonsets.updateStrategy"},
		"unavailable":                 {`{daemonsets: {rollingUpdate: {maxUnavailable: "some"}}}`, "spec.daemonsets.rollingUpdate.maxUnavailable"},
		"no pod may be unavailable":   {`{daemonsets: {rollingUpdate: {maxUnavailable: 0}}}`, "spec.daemonsets.rollingUpdate.maxUnavailable"},
		"success threshold":           {`{driver: {startupProbe: {successThreshold: 2}}}`, "spec.driver.startupProbe.successThreshold"},
		"whole image beside version":  {`{toolkit: {image: "nvcr.io/nvidia/container-toolkit", version: v1}}`, "spec.toolkit"},
		"NRI without CDI":             {`{cdi: {enabled: false, nriPluginEnabled: true}}`, "spec.cdi"},
		"relative path":               {`{hostPaths: {driverInstallDir: run/nvidia}}`, "spec.hostPaths.driverInstallDir"},
		"path that climbs":            {`{hostPaths: {driverInstallDir: /run/../etc}}`, "spec.hostPaths.driverInstallDir"},
		"a string where a block goes": {`{driver: "yes"}`, "spec.driver"},
		"precompiled and GDS":         {`{driver: {usePrecompiled: true}, gds: {enabled: true}}`, "spec.driver.usePrecompiled: Invalid value: a precompiled driver cannot have GPUDirect Storage"},
		"precompiled and GDRCopy":     {`{driver: {usePrecompiled: true, enabled: true}, gdrcopy: {enabled: true}}`, "cannot have GDRCopy: remove driver.usePrecompiled or gdrcopy.enabled"},
		"liveness threshold":          {`{driver: {livenessProbe: {successThreshold: 2}}}`, "spec.driver.livenessProbe.successThreshold"},
		"no name of a ConfigMap":      {`{devicePlugin: {config: {name: Plugin_Config}}}`, "spec.devicePlugin.config.name"},
		"no name of a Secret":         {`{driver: {secretEnv: "a/b"}}`, "spec.driver.secretEnv"},
		"no key of a ConfigMap":       {`{devicePlugin: {config: {name: a, default: "a/b"}}}`, "spec.devicePlugin.config.default"},
		"MPS root that climbs":        {`{devicePlugin: {mps: {root: /run/../etc}}}`, "spec.devicePlugin.mps.root"},
		"relative kubelet directory":  {`{hostPaths: {kubeletRootDir: var/lib/kubelet}}`, "spec.hostPaths.kubeletRootDir"},
		"default MIG layout":          {`{migManager: {config: {default: all-balanced}}}`, "spec.migManager.config.default"},
		"service type":                {`{dcgmExporter: {service: {type: ExternalName}}}`, "spec.dcgmExporter.service.type"},
		"traffic policy":              {`{dcgmExporter: {service: {internalTrafficPolicy: Remote}}}`, "spec.dcgmExporter.service.internalTrafficPolicy"},
		"scrape interval":             {`{dcgmExporter: {serviceMonitor: {interval: 15 seconds}}}`, "spec.dcgmExporter.serviceMonitor.interval"},
		"relabeling action":           {`{operator: {metrics: {serviceMonitor: {relabelings: [{action: rename}]}}}}`, "spec.operator.metrics.serviceMonitor.relabelings[0].action"},
		"default runtime":             {`{operator: {defaultRuntime: runc}}`, "spec.operator.defaultRuntime"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			err := b.client.Create(t.Context(), policyOf(b, c.spec))
			b.in(t).Expect(err).To(MatchError(ContainSubstring(c.path)))
		})
	}
	for name, spec := range accepted {
		t.Run("accepted: "+name, func(t *testing.T) {
			strict := &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}, DryRun: []string{metav1.DryRunAll}}
			b.in(t).Expect(b.client.Create(t.Context(), policyOf(b, spec), strict)).To(Succeed())
		})
	}
	b.run()
	object := policyOf(b, "{}")
	b.create(object)
	b.awaitReady(1, time.Minute)
	for _, spec := range []string{
		"null",
		"{driver: {}, toolkit: {}, devicePlugin: {}, validator: {}, operator: {}, daemonsets: {}, mig: {}, cdi: {}, hostPaths: {}}",
		"{driver: null, toolkit: null, devicePlugin: null, validator: null, operator: null, daemonsets: null, mig: null, cdi: null, hostPaths: null}",
		"{driver: {manager: {}, startupProbe: {}, resources: {}, env: []}, daemonsets: {rollingUpdate: {}, labels: {}, podSecurityContext: {}}, validator: {driver: {}}}",
		"{gfd: {}, dcgm: {}, dcgmExporter: {}, migManager: {}, nodeStatusExporter: {}, gds: {}, gdrcopy: {}}",
		"{gfd: null, dcgm: null, dcgmExporter: null, migManager: null, nodeStatusExporter: null, gds: null, gdrcopy: null}",
		"{driver: {rdma: {}, repoConfig: {}, certConfig: {}, licensingConfig: {}, virtualTopology: {}, kernelModuleConfig: {}}, devicePlugin: {config: {}, mps: {}}}",
		`{dcgmExporter: {config: {}, serviceMonitor: {}, service: {}, hpcJobMapping: {}}, migManager: {config: {name: "", default: ""}, gpuClientsConfig: {}}, operator: {metrics: {}}}`,
	} {
		t.Run("means the defaults: "+spec, func(t *testing.T) {
			b := b.in(t)
			before := b.daemonSet(driverName).Generation
			b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			object.Object["spec"] = policyOf(b, spec).Object["spec"]
			b.Expect(b.client.Update(t.Context(), object)).To(Succeed())
			b.awaitReady(1, 30*time.Second)
			b.Expect(b.daemonSet(driverName).Generation).To(Equal(before), "the same objects")
		})
	}
	t.Run("what cannot be done as asked is told, and what runs stays", func(t *testing.T) {
		b := b.in(t)
		b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
		object.Object["spec"] = policyOf(b, "{cdi: {nriPluginEnabled: true}, toolkit: {enabled: false}}").Object["spec"]
		b.Expect(b.client.Update(t.Context(), object)).To(Succeed())
		b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).WithTimeout(10 * time.Second).
			Should(ContainElement(And(HaveField("State", v1.OperandInvalid), HaveField("Reason", v1.ReasonInvalidSpec))))
		b.Expect(b.daemonSet(pluginName)).NotTo(BeNil())
	})
}

// accepted are specs that NVIDIA's operator reconciles to ready, all of whose keys are known here.
var accepted = map[string]string{
	"what NVIDIA's chart writes": `
    operator: {defaultRuntime: docker, runtimeClass: nvidia, initContainer: {}, annotations: {openshift.io/scc: restricted-readonly}}
    daemonsets: {tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}], priorityClassName: system-node-critical, updateStrategy: RollingUpdate, rollingUpdate: {maxUnavailable: "1"}}
    validator: {repository: nvcr.io/nvidia, image: gpu-operator, version: v26.7.0, imagePullPolicy: IfNotPresent, plugin: {env: []}}
    mig: {strategy: single}
    cdi: {enabled: true, nriPluginEnabled: false}
    driver: {enabled: true, usePrecompiled: false, kernelModuleType: auto, repository: nvcr.io/nvidia, image: driver, version: 595.91.07, imagePullPolicy: IfNotPresent, startupProbe: {failureThreshold: 120, initialDelaySeconds: 60, periodSeconds: 10, timeoutSeconds: 60}, rdma: {enabled: false, useHostMofed: false}, manager: {repository: nvcr.io/nvidia/cloud-native, image: k8s-driver-manager, version: v0.12.0, imagePullPolicy: IfNotPresent}, repoConfig: {configMapName: ""}, certConfig: {name: ""}, licensingConfig: {secretName: "", nlsEnabled: true}, virtualTopology: {config: ""}, kernelModuleConfig: {name: ""}, secretEnv: "", hostNetwork: false}
    toolkit: {enabled: true, repository: nvcr.io/nvidia/k8s, image: container-toolkit, version: v1.20.0, imagePullPolicy: IfNotPresent, installDir: /usr/local/nvidia, hostNetwork: false}
    devicePlugin: {enabled: true, repository: nvcr.io/nvidia, image: k8s-device-plugin, version: v0.20.0, imagePullPolicy: IfNotPresent, hostNetwork: false, config: {name: "", default: ""}}
    dcgm: {enabled: false, repository: nvcr.io/nvidia/cloud-native, image: dcgm, version: 4.6.0-1-ubuntu24.04, imagePullPolicy: IfNotPresent, hostNetwork: false}
    dcgmExporter: {enabled: true, repository: nvcr.io/nvidia/k8s, image: dcgm-exporter, version: 4.6.0-4.8.3-distroless, imagePullPolicy: IfNotPresent, hostPID: false, hostNetwork: false, enablePodLabels: false, enablePodUID: false, service: {internalTrafficPolicy: Cluster}, serviceMonitor: {enabled: true, interval: 15s, scrapeTimeout: 10s, honorLabels: false, additionalLabels: {}, relabelings: []}}
    gfd: {enabled: true, repository: nvcr.io/nvidia, image: k8s-device-plugin, version: v0.20.0, imagePullPolicy: IfNotPresent, hostNetwork: false}
    migManager: {enabled: true, repository: nvcr.io/nvidia/cloud-native, image: k8s-mig-manager, version: v0.15.0, imagePullPolicy: IfNotPresent, hostNetwork: false, config: {name: "", default: all-disabled}, gpuClientsConfig: {name: ""}}
    nodeStatusExporter: {enabled: false, repository: nvcr.io/nvidia, image: gpu-operator, version: v26.7.0, imagePullPolicy: IfNotPresent, hostNetwork: false}
    gds: {enabled: false, repository: nvcr.io/nvidia/cloud-native, image: nvidia-fs, version: "2.29.4", imagePullPolicy: IfNotPresent}
    gdrcopy: {enabled: false, repository: nvcr.io/nvidia/cloud-native, image: gdrdrv, version: v2.6, imagePullPolicy: IfNotPresent}
    hostPaths: {rootFS: /, driverInstallDir: /run/nvidia/driver}`,
	"every optional part in use": `
    operator: {use_ocp_driver_toolkit: true, labels: {a: b}, metrics: {serviceMonitor: {enabled: true, interval: 1m30s, relabelings: [{sourceLabels: [__meta_kubernetes_pod_node_name], separator: ";", regex: ^(.*)$, targetLabel: nodename, replacement: $1, action: replace}, {sourceLabels: [a], modulus: 8, targetLabel: b, action: HashMod}]}}}
    driver: {livenessProbe: {periodSeconds: 30, successThreshold: 1}, readinessProbe: {successThreshold: 3}, useOpenKernelModules: true, rdma: {useHostMofed: true}, repoConfig: {configMapName: repo-config}, certConfig: {name: certs.example.com}, virtualTopology: {config: topology}, kernelModuleConfig: {name: kernel-module-params}, secretEnv: ubuntu-pro}
    devicePlugin: {config: {name: time-slicing-config-all, default: Tesla-T4_any.v1}, mps: {root: /var/run/mps}}
    dcgm: {enabled: true, hostPort: 5555}
    dcgmExporter: {args: [-f, /etc/dcgm-exporter/x.csv], annotations: {a.example.com/b: c}, config: {name: metrics-config}, service: {type: NodePort, internalTrafficPolicy: Local}, hostPID: true, hpcJobMapping: {enabled: true, directory: /var/lib/jobs}, enablePodLabels: true, enablePodUID: true, podLabelAllowlistRegex: ["^app$", "^team-.*"]}
    nodeStatusExporter: {enabled: true, serviceMonitor: {enabled: false}}
    migManager: {config: {name: custom-mig-parted-config}, gpuClientsConfig: {name: clients}}
    gds: {enabled: true, args: [a], env: [{name: A, value: b}]}
    gdrcopy: {enabled: true, image: "example.com/gdrdrv@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
    hostPaths: {kubeletRootDir: /data/kubelet}`,
	"a licence as Secret and as ConfigMap: the Secret wins":            `{driver: {licensingConfig: {secretName: licence, configMapName: licence}}}`,
	"precompiled, where the driver is that of the host":                `{driver: {enabled: false, usePrecompiled: true}, gds: {enabled: true}, gdrcopy: {enabled: true}}`,
	"precompiled, without the sidecars":                                `{driver: {usePrecompiled: true, version: "595"}, gds: {enabled: false}, gdrcopy: {}}`,
	"precompiled, beside blocks that are null":                         `{driver: {usePrecompiled: true, rdma: null}, gds: null, gdrcopy: {enabled: null}}`,
	"the network driver of the host without RDMA, which has no effect": `{driver: {rdma: {enabled: false, useHostMofed: true}}}`,
}

// policyOf is a policy with this spec as a user writes it, unknown to the Go types.
func policyOf(b *bed, spec string) *unstructured.Unstructured {
	b.t.Helper()
	content := map[string]any{}
	b.Expect(yaml.Unmarshal([]byte("spec: "+spec), &content)).To(Succeed())
	object := &unstructured.Unstructured{Object: map[string]any{"spec": content["spec"]}}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName(policy)
	return object
}
