package render_test

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/test/golden"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// prometheus are the kinds of a cluster with the Prometheus operator.
var prometheus = map[operand.OptionalKind]bool{operand.ServiceMonitor: true, operand.PrometheusRule: true}

var env = []v1.EnvVar{{Name: "EXTRA", Value: "1"}}

// scenarios are the clusters with golden files, for the operands that they affect.
var scenarios = map[string]struct {
	situation
	// of are the operands with golden files; all if empty.
	of []operand.Name
}{
	"default": {},
	"enabled": {situation: situation{spec: specgen.AllEnabled()}, of: offByDefault()},
	"two-pools": {
		situation: situation{nodes: []nodeinfo.Facts{node("ubuntu", "24.04"), node("rhel", "9.6")}},
		of:        []operand.Name{"driver"},
	},
	"overridden": {
		situation: situation{spec: v1.ClusterPolicySpec{
			Driver: &v1.DriverSpec{
				KernelModuleType: v1.KernelModuleOpen,
				ImageSpec: v1.ImageSpec{
					Repository:       "registry.local:5000/nvidia",
					Version:          "580.178.04",
					ImagePullPolicy:  corev1.PullAlways,
					ImagePullSecrets: []string{"a"},
				},
				ContainerSpec: v1.ContainerSpec{Args: []string{"init", "--verbose"}, Env: env, HostNetwork: new(true)},
				StartupProbe:  &v1.ProbeSpec{FailureThreshold: 240},
				Manager: &v1.DriverManagerSpec{
					Env:       []v1.EnvVar{{Name: "ENABLE_AUTO_DRAIN", Value: "true"}},
					ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"a", "b"}},
				},
			},
			Toolkit: &v1.ToolkitSpec{
				InstallDir: "/opt/nvidia", ImageSpec: v1.ImageSpec{Version: "v9"},
				ContainerSpec: v1.ContainerSpec{Env: env},
			},
			DevicePlugin: &v1.DevicePluginSpec{
				ImageSpec: v1.ImageSpec{Image: "registry.local:5000/plugin@sha256:" + hexDigest},
				ContainerSpec: v1.ContainerSpec{
					Args: []string{"--verbose"}, Env: append(slices.Clone(env), v1.EnvVar{Name: "FAIL_ON_INIT_ERROR", Value: "false"}),
					Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("128Mi")}},
				},
			},
			GFD: &v1.GFDSpec{
				ImageSpec: v1.ImageSpec{Version: "v9", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"a"}},
				ContainerSpec: v1.ContainerSpec{
					Args: []string{
						"--no-timestamp",
					}, Env: append(slices.Clone(env), v1.EnvVar{Name: "GFD_SLEEP_INTERVAL", Value: "5m"}), HostNetwork: new(true),
					Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("128Mi")}},
				},
			},
			Validator: &v1.ValidatorSpec{
				ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"c"}},
				Driver:    &v1.ValidatorComponentSpec{Env: env},
				Toolkit:   &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "0"}}},
				CUDA:      &v1.ValidatorComponentSpec{Env: env},
				Plugin:    &v1.ValidatorComponentSpec{Env: env},
			},
			NodeDiscovery: &v1.NodeDiscoverySpec{
				Mode:      v1.DiscoveryBuiltin,
				Resources: &v1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("16Mi")}},
			},
			MIGManager: &v1.MIGManagerSpec{
				ImageSpec: v1.ImageSpec{Version: "v9", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"a"}},
				ContainerSpec: v1.ContainerSpec{
					Args: []string{"--with-reboot"}, Env: env, HostNetwork: new(true),
					Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("256Mi")}},
				},
				Config:           &v1.MIGManagerConfigSpec{Name: "my-layouts"},
				GPUClientsConfig: &v1.GPUClientsConfigSpec{Name: "my-clients"},
			},
			Operator: &v1.OperatorSpec{RuntimeClass: "gpu"},
			MIG:      &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
		}},
	},
	"shared-gpus": {
		situation: situation{
			spec: v1.ClusterPolicySpec{
				DevicePlugin: &v1.DevicePluginSpec{
					ImageSpec: v1.ImageSpec{Version: "v9", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"a"}},
					ContainerSpec: v1.ContainerSpec{
						Args: []string{"--verbose"}, Env: env, HostNetwork: new(true),
						Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("128Mi")}},
					},
					Config: &v1.DevicePluginConfigSpec{Name: "plugin-configs", Default: "time-slicing"},
					MPS:    &v1.MPSSpec{Root: "/var/lib/mps"},
				},
				GFD:     &v1.GFDSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"b", "a"}}},
				GDS:     &v1.GDSSpec{Enabled: new(true)},
				GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
				MIG:     &v1.MIGSpec{Strategy: v1.MIGStrategySingle},
			},
			nodes: []nodeinfo.Facts{mpsNode()},
		},
		of: []operand.Name{"device-plugin", "gpu-feature-discovery", "mps-control-daemon"},
	},
	"shared-gpus-default": {
		situation: situation{
			spec: v1.ClusterPolicySpec{
				DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "plugin-configs"}},
			},
			nodes: []nodeinfo.Facts{mpsNode()},
		},
		of: []operand.Name{"mps-control-daemon"},
	},
	"nfd": {
		situation: situation{spec: v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}}},
		of:        []operand.Name{"gpu-feature-discovery"},
	},
	"precompiled": {
		situation: situation{
			spec: v1.ClusterPolicySpec{
				Driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "595"}},
			},
			nodes: []nodeinfo.Facts{
				onKernel(
					node("ubuntu", "24.04"),
					"amd64",
					"6.8.0-51-generic",
				), onKernel(node("rhel", "9.6"), "arm64", "5.14.0-503.22.1.el9_5.aarch64"),
			},
		},
		of: []operand.Name{"driver"},
	},
	"driver-toolkit": {
		situation: situation{
			spec: v1.ClusterPolicySpec{
				Driver: &v1.DriverSpec{
					RDMA: &v1.RDMASpec{Enabled: new(true)},
					ContainerSpec: v1.ContainerSpec{
						Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("8Gi")}},
					},
				},
				GDS: &v1.GDSSpec{Enabled: new(true)}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
			},
			nodes: []nodeinfo.Facts{coreOS("417.94.202503172034-0"), coreOS("418.94.202501221327-0"), node("ubuntu", "24.04")},
			toolkit: map[string]string{
				"417.94.202503172034-0": "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:" + hexDigest,
				"418.94.202501221327-0": "registry.local:5000/driver-toolkit:418",
				"418.94.202502111327-0": "registry.local:5000/not-needed",
			},
		},
		of: []operand.Name{"driver"},
	},
	"openshift": {
		situation: situation{
			nodes:      []nodeinfo.Facts{coreOS("418.94.202501221327-0")},
			toolkit:    map[string]string{"418.94.202501221327-0": "registry.local:5000/driver-toolkit:418"},
			openShift:  onOpenShift,
			configMaps: map[string][]string{"gpu-operator-trusted-ca": {"ca-bundle.crt"}},
		},
		of: []operand.Name{"driver"},
	},
	"sidecars": {
		situation: situation{spec: v1.ClusterPolicySpec{
			Driver:  &v1.DriverSpec{RDMA: &v1.RDMASpec{Enabled: new(true), UseHostMOFED: new(true)}, SecretEnv: "pro-token"},
			GDS:     &v1.GDSSpec{Enabled: new(true), Env: env, ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"gds"}}},
			GDRCopy: &v1.GDRCopySpec{Enabled: new(true), ImageSpec: v1.ImageSpec{Version: "v2.5"}},
		}},
		of: []operand.Name{"driver"},
	},
	"configured": {
		situation: situation{spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
			RepoConfig:         &v1.DriverRepoConfigSpec{ConfigMapName: "mirror"},
			CertConfig:         &v1.DriverCertConfigSpec{Name: "ca"},
			LicensingConfig:    &v1.DriverLicensingConfigSpec{SecretName: "licence", NLSEnabled: new(true)},
			VirtualTopology:    &v1.VirtualTopologyConfigSpec{Config: "topology"},
			KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "module-parameters"},
			LivenessProbe:      &v1.ProbeSpec{PeriodSeconds: 30, TimeoutSeconds: 20},
			ReadinessProbe:     &v1.ProbeSpec{TimeoutSeconds: 20, SuccessThreshold: 2},
		}}, configMaps: map[string][]string{
			"mirror": {"cuda.list", "mirror.list"}, "ca": {"ca.crt"}, "module-parameters": {"nvidia.conf"},
		}},
		of: []operand.Name{"driver"},
	},
	"without-cdi": {
		situation: situation{spec: v1.ClusterPolicySpec{CDI: &v1.CDISpec{Enabled: new(false)}}},
		of:        []operand.Name{"runtime-classes", "container-toolkit", "device-plugin", "mig-manager"},
	},
	"host-paths": {
		situation: situation{spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{
			RootFS: "/mnt/host", DriverInstallDir: "/opt/driver",
		}}},
		of: []operand.Name{
			"node-discovery",
			"driver",
			"container-toolkit",
			"device-plugin",
			"operator-validator",
			"mig-manager",
		},
	},
	"daemonsets": {
		situation: situation{spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{
			Labels: v1.Labels{
				"team": "ml", "app": "mine", "app.kubernetes.io/part-of": "mine", "app.kubernetes.io/managed-by": "Helm",
			},
			Annotations:        v1.Annotations{"note": "yes", "openshift.io/scc": "mine"},
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			PriorityClassName:  "gpu",
			RollingUpdate:      &v1.RollingUpdateSpec{MaxUnavailable: new(intstr.FromString("25%"))},
			PodSecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(1))},
		}}},
		of: []operand.Name{"node-discovery", "driver", "device-plugin"},
	},
	"global": {
		situation: situation{spec: v1.ClusterPolicySpec{Global: &fullGlobal}},
		of:        []operand.Name{"driver", "operator-validator", "dcgm-exporter"},
	},
	"placement": {
		situation: situation{spec: v1.ClusterPolicySpec{
			DaemonSets: placementOfAll,
			Driver:     &v1.DriverSpec{PlacementSpec: placementOfOne},
			DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: v1.PlacementSpec{
				Annotations: v1.Annotations{"note": "one"}, Labels: v1.Labels{"team": "one"},
				ContainerResources: bounded("gpu-node-wait", "nvidia-dcgm-exporter"),
			}},
		}},
		of: []operand.Name{"driver", "dcgm-exporter"},
	},
	"layouts": {
		situation: situation{nodes: []nodeinfo.Facts{
			runs(
				"containerd",
				"",
			), runs("cri-o", ""), runs("docker", ""), runs("containerd", "microk8s"), runs("cri-o", "openshift"),
			runs(
				"containerd",
				"rke2",
			), runs("containerd", "k3s"), runs("containerd", "k0s"), runs("containerd", "gke"), runs("containerd", "talos"),
			runs("containerd", "containerd-file"),
		}},
		// TestLayoutsOfTheToolkit covers the differences of the toolkit's DaemonSets.
		of: []operand.Name{"runtime-classes"},
	},
	"mixed-runtimes": {
		situation: situation{nodes: []nodeinfo.Facts{runs("containerd", ""), runs("cri-o", "openshift")}},
		of:        []operand.Name{"container-toolkit"},
	},
	"runtime-paths": {
		situation: situation{
			spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{
				{
					Name:  "CONTAINERD_CONFIG",
					Value: "/opt/containerd/etc/main.toml",
				}, {Name: "CONTAINERD_SOCKET", Value: "/opt/containerd/run/c.sock"},
				{Name: "RUNTIME_DROP_IN_CONFIG", Value: "/opt/containerd/etc/d/50-gpu.toml"},
				{Name: "RUNTIME_CONFIG_SOURCE", Value: "command, file=/opt/containerd/etc/main.toml"},
				{Name: "RUNTIME_EXECUTABLE_PATH", Value: "/opt/containerd/bin/containerd"}, {Name: "EXTRA", Value: "1"},
			}}}},
			nodes: []nodeinfo.Facts{runs("containerd", ""), runs("containerd", "talos")},
		},
		of: []operand.Name{"container-toolkit"},
	},
	"nri": {
		situation: situation{
			spec:  v1.ClusterPolicySpec{CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}},
			nodes: []nodeinfo.Facts{runs("containerd", ""), runs("cri-o", "openshift")},
		},
		of: []operand.Name{"runtime-classes", "container-toolkit", "device-plugin", "operator-validator"},
	},
	"hook": {
		situation: situation{
			spec: v1.ClusterPolicySpec{CDI: &v1.CDISpec{Enabled: new(false)}}, nodes: []nodeinfo.Facts{runs("cri-o", "")},
		},
		of: []operand.Name{"runtime-classes", "container-toolkit", "device-plugin", "operator-validator"},
	},
	// The toolkit configures one handler of such a name, too.
	"class-of-a-mode": {
		situation: situation{
			spec:  v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{RuntimeClass: "nvidia-cdi"}},
			nodes: []nodeinfo.Facts{runs("containerd", "")},
		},
		of: []operand.Name{"runtime-classes"},
	},
	"hook-and-class": {
		situation: situation{
			spec:  v1.ClusterPolicySpec{CDI: &v1.CDISpec{Enabled: new(false)}, Operator: &v1.OperatorSpec{RuntimeClass: "gpu"}},
			nodes: []nodeinfo.Facts{runs("containerd", ""), runs("cri-o", "")},
		},
		of: []operand.Name{"container-toolkit"},
	},
	"metrics": {
		situation: situation{optional: prometheus, spec: v1.ClusterPolicySpec{
			DCGM:               &v1.DCGMSpec{Enabled: new(true)},
			DCGMExporter:       &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true)}},
			NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true)},
		}},
		of: []operand.Name{"dcgm", "dcgm-exporter", "node-status-exporter", "operator-metrics"},
	},
	"metrics-openshift": {
		situation: situation{
			optional: prometheus,
			nodes:    []nodeinfo.Facts{runs("cri-o", "openshift")},
			spec: v1.ClusterPolicySpec{
				DCGMExporter: &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true)}},
			},
		},
		of: []operand.Name{"dcgm-exporter"},
	},
	"metrics-overridden": {
		situation: situation{optional: prometheus, spec: metricsOverridden},
		of:        []operand.Name{"dcgm", "dcgm-exporter", "node-status-exporter", "operator-metrics"},
	},
	"metrics-plain": {
		situation: situation{
			optional: prometheus,
			endpoint: operand.MetricsEndpoint{Plain: true},
		}, of: []operand.Name{"operator-metrics"},
	},
	"metrics-certified": {
		situation: situation{
			optional: prometheus,
			endpoint: operand.MetricsEndpoint{Certified: true, CASecret: "gpu-operator-metrics-tls"},
		},
		of: []operand.Name{"operator-metrics"},
	},
	"node-pools": {
		situation: situation{
			spec: v1.ClusterPolicySpec{NodePools: differingPools},
			nodes: []nodeinfo.Facts{
				node(
					"ubuntu",
					"24.04",
				), inTeam("a", node("ubuntu", "24.04")), inTeam("b", mpsNode()), inTeam("c", runs("cri-o", "")),
			},
		},
		of: []operand.Name{"driver", "container-toolkit", "device-plugin", "mps-control-daemon"},
	},
	"without-driver": {
		situation: situation{spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}}},
		of:        []operand.Name{"container-toolkit"},
	},
	"without-toolkit": {
		situation: situation{spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{Enabled: new(false)}}},
		of:        []operand.Name{"operator-validator"},
	},
	"without-device-plugin": {
		situation: situation{spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)}}},
		of:        []operand.Name{"operator-validator"},
	},
}

// mpsNode is a node whose configuration shares its GPUs by the Multi-Process Service.
func mpsNode() nodeinfo.Facts {
	facts := node("ubuntu", "24.04")
	facts.MPSCapable = "true"
	return facts
}

// coreOS is a node of OpenShift with this release of Red Hat CoreOS.
func coreOS(release string) nodeinfo.Facts {
	facts := runs("cri-o", "openshift")
	facts.Name, facts.OSID, facts.OSVersion, facts.OSTree = "rhcos", "rhcos", release[:1]+"."+release[1:3], release
	return facts
}

func onKernel(facts nodeinfo.Facts, architecture, kernel string) nodeinfo.Facts {
	facts.Architecture, facts.Kernel = architecture, kernel
	return facts
}

// metricsOverridden changes every field of the operands that serve metrics.
var metricsOverridden = v1.ClusterPolicySpec{
	DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)},
	HostPaths: &v1.HostPathsSpec{
		KubeletRootDir:   "/data/kubelet/",
		DriverInstallDir: "/opt/driver",
		RootFS:           "/mnt/host",
	},
	Operator: &v1.OperatorSpec{Metrics: &v1.OperatorMetricsSpec{ServiceMonitor: &monitor}},
	DCGM: &v1.DCGMSpec{
		Enabled: new(true), ImageSpec: v1.ImageSpec{Version: "v9", ImagePullSecrets: []string{"a"}},
		ContainerSpec: v1.ContainerSpec{Env: env, Args: []string{"-n"}, HostNetwork: new(true)},
	},
	DCGMExporter: &v1.DCGMExporterSpec{
		ImageSpec: v1.ImageSpec{
			Repository:       "registry.local:5000/nvidia",
			ImagePullPolicy:  corev1.PullAlways,
			ImagePullSecrets: []string{"a"},
		},
		ContainerSpec: v1.ContainerSpec{
			Env:       append(slices.Clone(env), v1.EnvVar{Name: "DCGM_EXPORTER_LISTEN", Value: ":9401"}),
			Args:      []string{"--debug"},
			Resources: &v1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("512Mi")}},
		},
		PlacementSpec: v1.PlacementSpec{
			Annotations: v1.Annotations{"openshift.io/scc": "mine", "example.com/text": "a: \"b\"\nc"},
		},
		Config:         &v1.DCGMExporterConfigSpec{Name: "my-metrics"},
		ServiceMonitor: &monitor,
		Service: &v1.DCGMExporterServiceSpec{
			Type: corev1.ServiceTypeNodePort, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal),
		},
		HostPID:         new(true),
		HPCJobMapping:   &v1.HPCJobMappingSpec{Enabled: new(true), Directory: "/var/spool/jobs"},
		EnablePodLabels: new(true), EnablePodUID: new(true),
		PodLabelAllowlistRegex: []string{"^app$", `^team\.example\.com/.*`},
	},
	NodeStatusExporter: &v1.NodeStatusExporterSpec{
		Enabled: new(
			true,
		), ImageSpec: v1.ImageSpec{Image: "registry.local:5000/gpu-operator:v2", ImagePullPolicy: corev1.PullAlways},
		ContainerSpec: v1.ContainerSpec{
			Env:         append(slices.Clone(env), v1.EnvVar{Name: "METRICS_PORT", Value: "8010"}),
			HostNetwork: new(true),
		},
		ServiceMonitor: &monitor,
	},
}

var monitor = v1.ServiceMonitorSpec{
	Enabled: new(true), Interval: "15s", ScrapeTimeout: "10s", HonorLabels: new(true),
	AdditionalLabels: v1.Labels{"release": "prometheus"},
	Relabelings: []v1.RelabelConfig{
		{SourceLabels: []string{"__meta_kubernetes_pod_node_name"}, TargetLabel: "node", Regex: "(.*)", Action: "replace"},
		{TargetLabel: "cluster", Replacement: new(`a"b`), Separator: new(";")},
	},
}

const hexDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// offByDefault are the operands that an empty spec does not install and that their own field turns on.
func offByDefault() []operand.Name {
	all, err := operands.Catalogue()
	if err != nil {
		panic(err) // A defect of the catalogue, at which the operator does not start either.
	}
	var names []operand.Name
	for _, o := range all {
		byDefault := o.Decide(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})})
		enabled := o.Decide(operand.Input{Spec: effective.Of(specgen.AllEnabled())})
		if byDefault.Choice != operand.Install && enabled.Choice == operand.Install {
			names = append(names, o.Name)
		}
	}
	return names
}

// Golden files of what is applied, to read and to compare with what NVIDIA's operator applies. UPDATE_GOLDEN=1 writes
// them.
func TestGolden(t *testing.T) {
	kept := map[string]bool{}
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			for operand, objects := range scenario.objects(t) {
				if len(scenario.of) > 0 && !slices.Contains(scenario.of, operand) {
					continue
				}
				file := string(operand) + "-" + name + ".golden.yaml"
				kept[file] = true
				golden.Compare(t, "testdata/"+file, toYAML(t, objects))
			}
		})
	}
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !kept[entry.Name()] {
			t.Errorf("testdata/%s belongs to no scenario: remove it", entry.Name())
		}
	}
}

// Rendering is deterministic, or each pass would write objects without a reason.
func TestRenderingIsTheSameEachTime(t *testing.T) {
	scenario := scenarios["overridden"].situation
	want := scenario.objects(t)
	for range 5 {
		for operand, objects := range scenario.objects(t) {
			if toYAML(t, objects) != toYAML(t, want[operand]) {
				t.Fatalf("%s differs between two renderings", operand)
			}
		}
	}
}
