package dropin

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// TestObjects renders policies as the operator does, and reads what NVIDIA's images, other projects and scripts rely on
// from the objects that the API server accepts. What needs nodes or images is tested where they are: the annotation of
// driver upgrades and nodes without a GPU in internal/controller/node, the validator's log in cmd/gpu-node.
func TestObjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Expect(e.client.Create(t.Context(), decoded(e.WithT, "{apiVersion: v1, kind: Namespace, metadata: {name: "+
		namespace+"}}"))).To(Succeed())
	e.tryAll(renderingLines, slices.Concat(packageFileRows(), subscriptionRows(), certificateRows(), nameRows(),
		nodeFeatureRows(), migRows(), []row{
			{name: "every key of the module parameters", verdict: honoured, check: (*env).moduleParameters},
			{name: "resources of every container", verdict: honoured, check: (*env).resourcesOfEveryContainer},
			{name: "the host network of the MPS daemon", verdict: honoured, check: (*env).hostNetworkOfMPS},
			{name: "another root of the host", verdict: honoured, check: (*env).rootOfTheHost},
			{name: "the runtime's name in the toolkit's variables", verdict: honoured, check: (*env).runtimeClass},
			{name: "OpenShift's version, proxy and certificates", verdict: honoured, check: (*env).openShift},
			{name: "the memory of a GPU as a metric", verdict: honoured, check: (*env).memoryMetric},
		}))
}

var (
	repositories = &v1.DriverRepoConfigSpec{ConfigMapName: "repos"}
	withSidecars = v1.ClusterPolicySpec{
		GDS: &v1.GDSSpec{Enabled: new(true)}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
	}
	installers = []string{"nvidia-driver-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"}
)

// packageFileRows: repositories and certificates are mounted file by file beside those of the image, in each container
// that installs packages. Nothing is copied: a container that starts again, as after a boot, finds the same files.
func packageFileRows() (rows []row) {
	for _, c := range []struct{ id, version, repos, certificates string }{
		{"ubuntu", "24.04", "/etc/apt/sources.list.d/", "/usr/local/share/ca-certificates/"},
		{"rhel", "9.6", "/etc/yum.repos.d/", "/etc/pki/ca-trust/extracted/pem/"},
		{"rocky", "9.6", "/etc/yum.repos.d/", "/etc/pki/ca-trust/extracted/pem/"},
		{"sles", "15.6", "/etc/zypp/repos.d/", "/etc/pki/trust/anchors/"},
	} {
		rows = append(rows, row{name: "repositories and certificates on " + c.id, verdict: honoured, check: func(e *env) {
			s := situation{
				spec: *withSidecars.DeepCopy(), nodes: []nodeinfo.Facts{gpuNode(c.id, c.version)},
				keys: map[string][]string{"repos": {"mirror"}, "certs": {"a.pem", "b.pem"}},
			}
			s.spec.Driver = &v1.DriverSpec{RepoConfig: repositories, CertConfig: &v1.DriverCertConfigSpec{Name: "certs"}}
			driver := s.daemonSet(e, "driver")
			for _, name := range installers {
				e.Expect(mountedFiles(container(e.WithT, driver, name), c.repos, c.certificates)).To(Equal(map[string]string{
					c.repos + "mirror":       "repo-config/mirror",
					c.certificates + "a.pem": "cert-config/a.pem", c.certificates + "b.pem": "cert-config/b.pem",
				}), name)
			}
		}})
	}
	return rows
}

// certificateRows: the bundle of spec.global.caBundle is where the package managers of the driver's containers read
// certificates: they do not read SSL_CERT_FILE. A certificate of the user's in the same file takes precedence.
func certificateRows() (rows []row) {
	const fedora, ubuntu = "/etc/pki/ca-trust/extracted/pem/", "/usr/local/share/ca-certificates/"
	const suse, bundle = "/etc/pki/trust/anchors/", "gpu-operator-ca-bundle/ca-bundle.crt"
	for _, c := range []struct {
		name, id, version, directory string
		of                           func(*v1.ClusterPolicySpec)
		want                         map[string]string
	}{
		{"rhel", "rhel", "9.6", fedora, nil, map[string]string{fedora + "tls-ca-bundle.pem": bundle}},
		{
			"rhel, with a file of the user's", "rhel", "9.6", fedora,
			func(spec *v1.ClusterPolicySpec) { spec.Driver.CertConfig = &v1.DriverCertConfigSpec{Name: "certs"} },
			map[string]string{fedora + "tls-ca-bundle.pem": "cert-config/tls-ca-bundle.pem"},
		},
		{"ubuntu", "ubuntu", "24.04", ubuntu, nil, map[string]string{ubuntu + "gpu-operator-ca-bundle.crt": bundle}},
		{"sles", "sles", "15.6", suse, nil, map[string]string{suse + "gpu-operator-ca-bundle.pem": bundle}},
		{
			"rhel, without a bundle", "rhel", "9.6", fedora,
			func(spec *v1.ClusterPolicySpec) { spec.Global = nil }, map[string]string{},
		},
	} {
		rows = append(rows, row{name: "certificates of a proxy on " + c.name, verdict: honoured, check: func(e *env) {
			s := situation{
				spec: *withSidecars.DeepCopy(), nodes: []nodeinfo.Facts{gpuNode(c.id, c.version)},
				keys: map[string][]string{"certs": {"tls-ca-bundle.pem"}},
			}
			s.spec.Driver = &v1.DriverSpec{}
			s.spec.Global = &v1.GlobalSpec{CABundle: &v1.CABundleSpec{ConfigMapName: "gpu-operator-trusted-ca"}}
			if c.of != nil {
				c.of(&s.spec)
			}
			driver := s.daemonSet(e, "driver")
			for _, name := range installers {
				e.Expect(mountedFiles(container(e.WithT, driver, name), c.directory)).To(Equal(c.want), name)
			}
		}})
	}
	return rows
}

// subscriptionRows: the files of the host's subscription that the driver container mounts. A strict type keeps a pod
// from starting on a host without the file.
func subscriptionRows() (rows []row) {
	redHat := []string{"/etc/pki/entitlement Directory", "/etc/rhsm Directory", "/etc/yum.repos.d/redhat.repo File"}
	suse := []string{"/etc/SUSEConnect FileOrCreate", "/etc/zypp/credentials.d Directory"}
	repos := &v1.DriverSpec{RepoConfig: repositories}
	rhel, sles := gpuNode("rhel", "9.6"), gpuNode("sles", "15.6")
	for _, c := range []struct {
		name   string
		driver *v1.DriverSpec
		nodes  []nodeinfo.Facts
		want   []string
	}{
		{"rhel, containerd", nil, []nodeinfo.Facts{rhel}, redHat},
		{"rhel, containerd, repositories", repos, []nodeinfo.Facts{rhel}, nil},
		{"rhel, CRI-O", nil, []nodeinfo.Facts{withRuntime("cri-o", rhel)}, nil},
		{"rhel, CRI-O beside containerd", nil, []nodeinfo.Facts{withRuntime("cri-o", rhel), rhel}, redHat},
		{"sles", nil, []nodeinfo.Facts{sles}, suse},
		{"sles, CRI-O", nil, []nodeinfo.Facts{withRuntime("cri-o", sles)}, suse},
		{"sles, repositories", repos, []nodeinfo.Facts{sles}, suse},
		{
			"sl-micro, repositories, and CRI-O", repos,
			[]nodeinfo.Facts{withRuntime("cri-o", gpuNode("sl-micro", "6.1"))}, suse,
		},
		{"rocky", nil, []nodeinfo.Facts{gpuNode("rocky", "9.6")}, nil},
	} {
		rows = append(rows, row{name: "subscriptions on " + c.name, verdict: honoured, check: func(e *env) {
			driver := situation{spec: v1.ClusterPolicySpec{Driver: c.driver}, nodes: c.nodes}.daemonSet(e, "driver")
			types := map[string]string{}
			for _, volume := range driver.Spec.Template.Spec.Volumes {
				if strings.HasPrefix(volume.Name, "subscription-") {
					types[volume.Name] = volume.HostPath.Path + " " + string(*volume.HostPath.Type)
				}
			}
			var got []string
			for _, mount := range container(e.WithT, driver, "nvidia-driver-ctr").VolumeMounts {
				if path, isSubscription := types[mount.Name]; isSubscription {
					got = append(got, path)
				}
			}
			e.Expect(got).To(ConsistOf(c.want))
			e.Expect(types).To(HaveLen(len(got)), "no volume stays without its mount")
		}})
	}
	return rows
}

// nameRows: the only DaemonSet of the driver or the toolkit has the name that NVIDIA's operator gives it, whatever the
// system and the container runtime are: scripts wait for it by this name.
func nameRows() (rows []row) {
	for _, c := range []struct {
		name string
		node nodeinfo.Facts
	}{
		{"ubuntu, containerd", gpuNode("ubuntu", "24.04")},
		{"rhel, CRI-O", withRuntime("cri-o", gpuNode("rhel", "9.6"))},
		{"sles, docker", withRuntime("docker", gpuNode("sles", "15.6"))},
		{"k3s", distributedBy("k3s")}, {"rke2", distributedBy("rke2")}, {"microk8s", distributedBy("microk8s")},
		{"OpenShift", coreOS()},
	} {
		rows = append(rows, row{name: "names of DaemonSets on " + c.name, verdict: honoured, check: func(e *env) {
			sets := situation{
				nodes: []nodeinfo.Facts{c.node}, toolkit: driverToolkit,
			}.daemonSets(e)
			for operandName, want := range map[operand.Name]string{
				"driver": "nvidia-driver-daemonset", "container-toolkit": "nvidia-container-toolkit-daemonset",
			} {
				e.Expect(sets[operandName]).To(HaveLen(1))
				e.Expect(sets[operandName][0].Name).To(Equal(want))
				e.Expect(sets[operandName][0].Spec.Selector.MatchLabels).To(HaveKeyWithValue("app", want))
			}
		}})
	}
	return rows
}

// nodeFeatureRows: USE_NODE_FEATURE_API in gfd.env decides where GPU Feature Discovery writes its labels, and whether
// it gets a token.
func nodeFeatureRows() (rows []row) {
	for _, c := range []struct {
		name  string
		mode  v1.DiscoveryMode
		value string
		want  bool
	}{
		{"on", v1.DiscoveryBuiltin, "true", true},
		{"on, as a number", v1.DiscoveryBuiltin, "1", true},
		{"off", v1.DiscoveryBuiltin, "false", false},
		{"off, with mode nfd", v1.DiscoveryNFD, "false", false},
		{"on, with mode nfd", v1.DiscoveryNFD, "true", true},
		{"unset", v1.DiscoveryBuiltin, "", false},
		{"unset, with mode nfd", v1.DiscoveryNFD, "", true},
	} {
		rows = append(rows, row{name: "the API of node features " + c.name, verdict: honoured, check: func(e *env) {
			spec := v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: c.mode}, GFD: &v1.GFDSpec{}}
			if c.value != "" {
				spec.GFD.Env = []v1.EnvVar{{Name: "USE_NODE_FEATURE_API", Value: c.value}}
			}
			set := situation{spec: spec}.daemonSet(e, "gpu-feature-discovery")
			e.Expect(set.Spec.Template.Spec.AutomountServiceAccountToken).To(HaveValue(Equal(c.want)), "token")
			values := valuesOf(container(e.WithT, set, "gpu-feature-discovery"), "USE_NODE_FEATURE_API")
			e.Expect(slices.Equal(values, []string{"false"})).To(Equal(!c.want), "a file is written: %q", values)
		}})
	}
	return rows
}

// migRows: without mig.strategy in the spec, the device plugin's configuration may set one: the plugin and GPU Feature
// Discovery see the MIG devices unless the spec excludes them. The MPS daemon serves none.
func migRows() (rows []row) {
	for _, c := range []struct {
		strategy v1.MIGStrategy
		want     map[string]string
	}{
		{"", map[string]string{"nvidia-device-plugin": "all", "gpu-feature-discovery": "all"}},
		{v1.MIGStrategyNone, map[string]string{}},
		{v1.MIGStrategySingle, map[string]string{
			"nvidia-device-plugin": "all", "gpu-feature-discovery": "all", "mps-control-daemon-ctr": "all",
		}},
	} {
		name := "MIG devices with the strategy " + string(c.strategy)
		rows = append(rows, row{name: name, verdict: honoured, check: func(e *env) {
			s := shared()
			s.spec.MIG = &v1.MIGSpec{Strategy: c.strategy}
			got := map[string]string{}
			for _, sets := range s.daemonSets(e) {
				for _, c := range sets[0].Spec.Template.Spec.Containers {
					for _, value := range valuesOf(c, "NVIDIA_MIG_MONITOR_DEVICES") {
						got[c.Name] = value
						e.Expect(c.SecurityContext.Privileged).To(HaveValue(BeTrue()), "the runtime refuses it otherwise")
					}
				}
			}
			e.Expect(got).To(Equal(c.want))
		}})
	}
	return rows
}

// shared is a cluster whose GPUs can be shared by MPS, with a configuration of the device plugin.
func shared() situation {
	node := gpuNode("ubuntu", "24.04")
	node.MPSCapable = "true"
	return situation{nodes: []nodeinfo.Facts{node}, spec: v1.ClusterPolicySpec{
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs", Default: "any"}},
	}, keys: map[string][]string{"configs": {"any"}}}
}

// moduleParameters: a driver image of the user's may read further keys than NVIDIA's.
func (e *env) moduleParameters() {
	driver := situation{
		spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
			KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "parameters"}, RDMA: &v1.RDMASpec{Enabled: new(true)},
		}},
		keys: map[string][]string{"parameters": {"mine.conf", "nvidia.conf"}},
	}.daemonSet(e, "driver")
	for _, name := range []string{"nvidia-driver-ctr", "nvidia-peermem-ctr"} {
		e.Expect(mountedFiles(container(e.WithT, driver, name), "/drivers/")).To(And(HaveLen(2),
			HaveKey("/drivers/mine.conf"), HaveKey("/drivers/nvidia.conf")), name)
	}
}

// resourcesOfEveryContainer: the resources of an operand reach all its containers, init containers included: a
// ResourceQuota refuses a pod with a container that has none. containerResources replaces them.
func (e *env) resourcesOfEveryContainer() {
	limits := corev1.ResourceList{"memory": resource.MustParse("1Gi")}
	cpu := corev1.ResourceList{"cpu": resource.MustParse("1")}
	of := v1.ContainerSpec{Resources: &v1.ResourceRequirements{Limits: limits, Requests: limits}}
	s := shared()
	s.spec = v1.ClusterPolicySpec{
		NodeDiscovery: &v1.NodeDiscoverySpec{Resources: of.Resources},
		Driver:        &v1.DriverSpec{ContainerSpec: of, RDMA: &v1.RDMASpec{Enabled: new(true)}},
		GDS:           &v1.GDSSpec{Enabled: new(true)}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
		Toolkit:      &v1.ToolkitSpec{ContainerSpec: of},
		DevicePlugin: &v1.DevicePluginSpec{ContainerSpec: of, Config: s.spec.DevicePlugin.Config},
		GFD:          &v1.GFDSpec{ContainerSpec: of}, MIGManager: &v1.MIGManagerSpec{ContainerSpec: of},
		DCGM:               &v1.DCGMSpec{Enabled: new(true), ContainerSpec: of},
		DCGMExporter:       &v1.DCGMExporterSpec{ContainerSpec: of},
		NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true), ContainerSpec: of},
		Validator: &v1.ValidatorSpec{ContainerSpec: of, PlacementSpec: v1.PlacementSpec{
			ContainerResources: []v1.ContainerResources{{Name: "toolkit-validation"}, {
				Name: "cuda-validation", ResourceRequirements: v1.ResourceRequirements{Limits: cpu},
			}},
		}},
	}
	replaced := map[string]corev1.ResourceList{"toolkit-validation": nil, "cuda-validation": cpu}
	init, all := 0, s.daemonSets(e)
	for name, sets := range all {
		for _, set := range sets {
			init += len(set.Spec.Template.Spec.InitContainers)
			for _, c := range containers(set) {
				want, isReplaced := replaced[c.Name]
				if !isReplaced {
					want = limits
				}
				e.Expect(c.Resources.Limits).To(Equal(want), "%s, container %s", name, c.Name)
			}
		}
	}
	e.Expect(all).To(HaveLen(11))
	e.Expect(init).To(BeNumerically(">=", 15))
}

func (e *env) hostNetworkOfMPS() {
	for _, on := range []bool{true, false} {
		s := shared()
		s.spec.DevicePlugin.HostNetwork = &on
		sets := s.daemonSets(e)
		for _, name := range []operand.Name{"device-plugin", "mps-control-daemon"} {
			e.Expect(sets[name]).To(HaveLen(1))
			e.Expect(sets[name][0].Spec.Template.Spec.HostNetwork).To(Equal(on), "%s", name)
		}
	}
}

// rootOfTheHost: a driver on the host is below hostPaths.rootFS, which the toolkit reads from the marker of the
// validation.
func (e *env) rootOfTheHost() {
	for rootFS, want := range map[string]bool{"": false, "/": false, "/mnt/host": true} {
		s := situation{spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{RootFS: rootFS}}}
		args := container(e.WithT, s.daemonSet(e, "container-toolkit"), "driver-validation").Args
		e.Expect(slices.Contains(args, "--root-fs=/mnt/host")).To(Equal(want), "%q: %q", rootFS, args)
	}
}

// runtimeClass: the toolkit's runtime is the handler of the RuntimeClass, whatever toolkit.env sets.
func (e *env) runtimeClass() {
	for _, class := range []string{"", "gpu"} {
		sets := situation{spec: v1.ClusterPolicySpec{
			Operator: &v1.OperatorSpec{RuntimeClass: class},
			Toolkit: &v1.ToolkitSpec{ContainerSpec: v1.ContainerSpec{
				Env: []v1.EnvVar{{Name: "CONTAINERD_RUNTIME_CLASS", Value: "mine"}},
			}},
		}}.daemonSets(e)
		toolkit := container(e.WithT, sets["container-toolkit"][0], "nvidia-container-toolkit-ctr")
		e.Expect(valuesOf(toolkit, "CONTAINERD_RUNTIME_CLASS")).To(
			ConsistOf(*sets["device-plugin"][0].Spec.Template.Spec.RuntimeClassName), "the runtime of the pods")
	}
}

// memoryMetric: a list of metrics of the user's may have the total only, or only its parts.
func (e *env) memoryMetric() {
	s := situation{
		monitored: true, nodes: []nodeinfo.Facts{coreOS()}, toolkit: driverToolkit, spec: v1.ClusterPolicySpec{
			DCGMExporter: &v1.DCGMExporterSpec{ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true)}},
		},
	}
	rule := find(e.WithT, s.intents(e)["dcgm-exporter"], "PrometheusRule", "nvidia-dcgm-exporter")
	e.Expect(rules(e.WithT, rule)).To(HaveKeyWithValue("accelerator_memory_total_bytes",
		HavePrefix("(DCGM_FI_DEV_FB_TOTAL or (DCGM_FI_DEV_FB_USED + ")))
}

// openShift: the driver container gets the version of OpenShift and the proxy of the cluster without any field of the
// policy, with the certificates where the package manager reads them.
func (e *env) openShift() {
	const certificates = "/etc/pki/ca-trust/extracted/pem/"
	s := situation{
		nodes: []nodeinfo.Facts{coreOS()}, toolkit: driverToolkit,
		openShift: operand.OpenShiftCluster{Version: "4.18", ProxyHasCA: true, Proxy: v1.ProxySpec{HTTPSProxy: "http://a"}},
		keys:      map[string][]string{"gpu-operator-trusted-ca": {"ca-bundle.crt"}},
	}
	driver := container(e.WithT, s.daemonSet(e, "driver"), "nvidia-driver-ctr")
	e.Expect(valuesOf(driver, "OPENSHIFT_VERSION")).To(Equal([]string{"4.18"}))
	e.Expect(valuesOf(driver, "HTTPS_PROXY")).To(Equal([]string{"http://a"}))
	e.Expect(mountedFiles(driver, certificates)).To(HaveKey(certificates + "tls-ca-bundle.pem"))
}
