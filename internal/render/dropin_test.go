package render_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/rollout"
)

// These tests compare with what NVIDIA's operator renders, where users or NVIDIA's images rely on it.

var one = resource.MustParse("1")

// mountedFiles returns the mounts of single files of a container below these directories, by path: volume and key.
func mountedFiles(c corev1.Container, directories ...string) map[string]string {
	found := map[string]string{}
	for _, mount := range c.VolumeMounts {
		for _, directory := range directories {
			if strings.HasPrefix(mount.MountPath, directory) {
				found[mount.MountPath] = mount.Name + "/" + mount.SubPath
			}
		}
	}
	return found
}

// Repositories and certificates are mounted file by file beside those of the image, in each container that installs
// packages. Nothing is copied: a container that starts again, as after a boot, finds the same files.
func TestPackageFilesReachEveryContainerThatInstallsPackages(t *testing.T) {
	spec := v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{
			RepoConfig: &v1.DriverRepoConfigSpec{ConfigMapName: "repos"}, CertConfig: &v1.DriverCertConfigSpec{Name: "certs"},
		},
		GDS: &v1.GDSSpec{Enabled: new(true)}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
	}
	keys := map[string][]string{"repos": {"mirror"}, "certs": {"a.pem", "b.pem"}}
	for system, directories := range map[string][2]string{
		"ubuntu 24.04": {"/etc/apt/sources.list.d/", "/usr/local/share/ca-certificates/"},
		"rhel 9.6":     {"/etc/yum.repos.d/", "/etc/pki/ca-trust/extracted/pem/"},
		"rocky 9.6":    {"/etc/yum.repos.d/", "/etc/pki/ca-trust/extracted/pem/"},
		"sles 15.6":    {"/etc/zypp/repos.d/", "/etc/pki/trust/anchors/"},
	} {
		t.Run(system, func(t *testing.T) {
			id, version, _ := strings.Cut(system, " ")
			s := situation{spec: spec, nodes: []nodeinfo.Facts{node(id, version)}, configMaps: keys}
			ds := s.daemonSet(t, "driver")
			want := map[string]string{
				directories[0] + "mirror": "repo-config/mirror",
				directories[1] + "a.pem":  "cert-config/a.pem", directories[1] + "b.pem": "cert-config/b.pem",
			}
			for _, name := range []string{"nvidia-driver-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"} {
				got := mountedFiles(container(t, ds, name), directories[0], directories[1])
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", name, diff)
				}
			}
		})
	}
}

// Each key of the parameters of kernel modules is mounted: a driver image of the user's may read further ones.
func TestEveryKeyOfTheModuleParametersIsMounted(t *testing.T) {
	s := situation{
		spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
			KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "parameters"}, RDMA: &v1.RDMASpec{Enabled: new(true)},
		}},
		configMaps: map[string][]string{"parameters": {"mine.conf", "nvidia.conf"}},
	}
	for _, name := range []string{"nvidia-driver-ctr", "nvidia-peermem-ctr"} {
		got := slices.Sorted(maps.Keys(mountedFiles(container(t, s.daemonSet(t, "driver"), name), "/drivers/")))
		if want := []string{"/drivers/mine.conf", "/drivers/nvidia.conf"}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A licence hides the key of its file's name among the parameters of kernel modules, which is reported: the API server
// refuses pods that mount two files at one path. Without a licence the key is mounted.
func TestTheLicenceHidesAKeyOfTheModuleParameters(t *testing.T) {
	const licensed = "spec.driver.licensingConfig.configMapName"
	for name, test := range map[string]struct {
		licence *v1.DriverLicensingConfigSpec
		want    map[string]string
		hidden  []string
	}{
		"no licence": {
			want: map[string]string{
				"/drivers/ClientConfigToken": "module-config/ClientConfigToken",
				"/drivers/gridd.conf":        "module-config/gridd.conf",
				"/drivers/nvidia.conf":       "module-config/nvidia.conf",
			},
		},
		"of an older licence server": {
			licence: &v1.DriverLicensingConfigSpec{ConfigMapName: "licence", NLSEnabled: new(false)},
			want: map[string]string{
				"/drivers/ClientConfigToken": "module-config/ClientConfigToken",
				"/drivers/gridd.conf":        "licensing-config/gridd.conf",
				"/drivers/nvidia.conf":       "module-config/nvidia.conf",
			},
			hidden: []string{"gridd.conf"},
		},
		"with a token": {
			licence: &v1.DriverLicensingConfigSpec{ConfigMapName: "licence", NLSEnabled: new(true)},
			want: map[string]string{
				"/drivers/ClientConfigToken/client_configuration_token.tok": "licensing-config/client_configuration_token.tok",
				"/drivers/gridd.conf":  "licensing-config/gridd.conf",
				"/drivers/nvidia.conf": "module-config/nvidia.conf",
			},
			hidden: []string{"ClientConfigToken", "gridd.conf"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation{
				spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
					KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "parameters"}, LicensingConfig: test.licence,
				}},
				configMaps: map[string][]string{
					"parameters": {"ClientConfigToken", "gridd.conf", "nvidia.conf"},
					"licence":    {"client_configuration_token.tok", "gridd.conf"},
				},
			}
			driver, seen := container(t, s.daemonSet(t, "driver"), "nvidia-driver-ctr"), map[string]bool{}
			for _, mount := range driver.VolumeMounts {
				if seen[mount.MountPath] {
					t.Errorf("%s is mounted twice", mount.MountPath)
				}
				seen[mount.MountPath] = true
			}
			if diff := cmp.Diff(test.want, mountedFiles(driver, "/drivers/")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var notes []string
			for _, key := range test.hidden {
				notes = append(notes, "spec.driver.kernelModuleConfig.name: key "+key+" of ConfigMap parameters is not "+
					"mounted, as "+licensed+" has the same file: remove the key")
			}
			if diff := cmp.Diff(notes, s.plan(t).Doubtful()); diff != "" {
				t.Errorf("notes: -want +got:\n%s", diff)
			}
			s.spec.Driver.Enabled = new(false)
			if notes := s.plan(t).Doubtful(); notes != nil {
				t.Errorf("without the driver: %q", notes)
			}
		})
	}
}

// The files of the host's subscription that the driver container mounts, by system, container runtime and spec. A
// strict type keeps a pod from starting on a host without the file.
func TestSubscriptionsOfHosts(t *testing.T) {
	redHat := []string{
		"/etc/pki/entitlement Directory", "/etc/rhsm Directory", "/etc/yum.repos.d/redhat.repo File",
	}
	suse := []string{"/etc/SUSEConnect FileOrCreate", "/etc/zypp/credentials.d Directory"}
	repos := &v1.DriverSpec{RepoConfig: &v1.DriverRepoConfigSpec{ConfigMapName: "repos"}}
	rhel, sles := node("rhel", "9.6"), node("sles", "15.6")
	for name, test := range map[string]struct {
		driver *v1.DriverSpec
		nodes  []nodeinfo.Facts
		want   []string
	}{
		"rhel, containerd":               {nil, []nodeinfo.Facts{rhel}, redHat},
		"rhel, containerd, repositories": {repos, []nodeinfo.Facts{rhel}, nil},
		"rhel, CRI-O":                    {nil, []nodeinfo.Facts{withRuntime("cri-o", rhel)}, nil},
		"rhel, CRI-O beside containerd": {
			nil, []nodeinfo.Facts{withRuntime("cri-o", rhel), withRuntime("containerd", rhel)}, redHat,
		},
		"sles":                              {nil, []nodeinfo.Facts{sles}, suse},
		"sles, CRI-O":                       {nil, []nodeinfo.Facts{withRuntime("cri-o", sles)}, suse},
		"sles, repositories":                {repos, []nodeinfo.Facts{sles}, suse},
		"sl-micro, repositories, and CRI-O": {repos, []nodeinfo.Facts{withRuntime("cri-o", node("sl-micro", "6.1"))}, suse},
		"rocky":                             {nil, []nodeinfo.Facts{node("rocky", "9.6")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation{spec: v1.ClusterPolicySpec{Driver: test.driver}, nodes: test.nodes}
			pod := s.daemonSet(t, "driver").Spec.Template.Spec
			var got []string
			for _, mount := range container(t, s.daemonSet(t, "driver"), "nvidia-driver-ctr").VolumeMounts {
				at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
				if strings.HasPrefix(mount.Name, "subscription-") {
					got = append(got, pod.Volumes[at].HostPath.Path+" "+string(*pod.Volumes[at].HostPath.Type))
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "subscription-rhsm" }) !=
				slices.Contains(got, "/etc/rhsm Directory") {
				t.Error("the volume stays without its mount")
			}
		})
	}
}

// The first node with containerd beside CRI-O makes the subscriptions mounts again, but no driver outdated. The digests
// are those of the release before, when all of these pods mounted them, with strict types.
func TestSubscriptionsMakeNoDriverOutdated(t *testing.T) {
	rhel, crio := node("rhel", "9.6"), node("rhel", "9.6")
	crio.Name, crio.Runtime = "crio", "cri-o"
	for name, test := range map[string]struct {
		nodes []nodeinfo.Facts
		want  string
	}{
		"containerd": {[]nodeinfo.Facts{rhel}, "6104e1e07f97a4dd"},
		"CRI-O":      {[]nodeinfo.Facts{crio}, "6104e1e07f97a4dd"},
		"both":       {[]nodeinfo.Facts{crio, rhel}, "6104e1e07f97a4dd"},
		"SUSE":       {[]nodeinfo.Facts{node("sles", "15.6")}, "3833d93b2c3b42a4"},
	} {
		if got := digestAfter(t, situation{nodes: test.nodes}, test.want); got != test.want {
			t.Errorf("%s: digest %q, want %q", name, got, test.want)
		}
	}
}

// The resources of an operand reach all its containers, init containers included: a ResourceQuota refuses a pod with a
// container that has none. containerResources still replaces them.
func TestResourcesReachEveryContainer(t *testing.T) {
	limits := corev1.ResourceList{"memory": resource.MustParse("1Gi")}
	of := v1.ContainerSpec{Resources: &v1.ResourceRequirements{Limits: limits, Requests: limits}}
	spec := v1.ClusterPolicySpec{
		NodeDiscovery: &v1.NodeDiscoverySpec{Resources: of.Resources},
		Driver:        &v1.DriverSpec{ContainerSpec: of, RDMA: &v1.RDMASpec{Enabled: new(true)}},
		GDS:           &v1.GDSSpec{Enabled: new(true)}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
		Toolkit:      &v1.ToolkitSpec{ContainerSpec: of},
		DevicePlugin: &v1.DevicePluginSpec{ContainerSpec: of, Config: &v1.DevicePluginConfigSpec{Name: "configs"}},
		GFD:          &v1.GFDSpec{ContainerSpec: of}, MIGManager: &v1.MIGManagerSpec{ContainerSpec: of},
		DCGM:               &v1.DCGMSpec{Enabled: new(true), ContainerSpec: of},
		DCGMExporter:       &v1.DCGMExporterSpec{ContainerSpec: of},
		NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true), ContainerSpec: of},
		Validator: &v1.ValidatorSpec{ContainerSpec: of, PlacementSpec: v1.PlacementSpec{
			ContainerResources: []v1.ContainerResources{{Name: "toolkit-validation"}, {
				Name: "cuda-validation", ResourceRequirements: v1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": one}},
			}},
		}},
	}
	replaced := map[string]corev1.ResourceList{"toolkit-validation": nil, "cuda-validation": {"cpu": one}}
	operands, init := 0, 0
	for name, sets := range (situation{spec: spec, nodes: []nodeinfo.Facts{mpsNode()}}).daemonSets(t) {
		operands++
		for _, ds := range sets {
			init += len(ds.Spec.Template.Spec.InitContainers)
			for _, c := range containers(&ds.Spec.Template.Spec) {
				want, isReplaced := replaced[c.Name]
				if !isReplaced {
					want = limits
				}
				if diff := cmp.Diff(want, c.Resources.Limits); diff != "" {
					t.Errorf("%s, container %s: -want +got:\n%s", name, c.Name, diff)
				}
			}
		}
	}
	if operands != 11 || init < 15 {
		t.Errorf("looked at %d operands and %d init containers only: the check is broken", operands, init)
	}
}

// digestAfter returns the template digest of the driver in a cluster in which an earlier release had this one.
func digestAfter(t *testing.T, s situation, earlier string) string {
	t.Helper()
	ds := s.daemonSet(t, "driver")
	live := rollout.LiveDaemonSet(ds)
	live.TemplateDigest, live.SignificantDigest = earlier, earlier
	s.live = map[string]rollout.Live{ds.Name: live}
	return digest(t, s, "driver")
}

// Drivers of a release that gave init containers no resources do not become outdated. The digest is of that release.
func TestResourcesOfInitContainersMakeNoDriverOutdated(t *testing.T) {
	s := situation{spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ContainerSpec: v1.ContainerSpec{
		Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": one}},
	}}}}
	const want = "42ba35e3cbba84d9"
	if got := digestAfter(t, s, want); got != want {
		t.Errorf("digest %q, want %q", got, want)
	}
}

// Without mig.strategy in the spec, the device plugin's configuration may set one: the plugin and GPU Feature Discovery
// see the MIG devices unless the spec excludes them. The MPS daemon serves none.
func TestMIGDevicesAreVisibleUnlessTheSpecExcludesThem(t *testing.T) {
	for strategy, want := range map[v1.MIGStrategy]map[string]string{
		"":                 {"nvidia-device-plugin": "all", "gpu-feature-discovery": "all"},
		v1.MIGStrategyNone: {},
		v1.MIGStrategySingle: {
			"nvidia-device-plugin": "all", "gpu-feature-discovery": "all", "mps-control-daemon-ctr": "all",
		},
	} {
		spec := v1.ClusterPolicySpec{
			MIG:          &v1.MIGSpec{Strategy: strategy},
			DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs"}},
		}
		got := map[string]string{}
		for _, sets := range (situation{spec: spec, nodes: []nodeinfo.Facts{mpsNode()}}).daemonSets(t) {
			for _, c := range sets[0].Spec.Template.Spec.Containers {
				for _, variable := range c.Env {
					if variable.Name == "NVIDIA_MIG_MONITOR_DEVICES" {
						got[c.Name] = variable.Value
						if !*c.SecurityContext.Privileged {
							t.Errorf("the runtime refuses the variable of %s, which is not privileged", c.Name)
						}
					}
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("strategy %q: -want +got:\n%s", strategy, diff)
		}
	}
}

// devicePlugin.hostNetwork also applies to the MPS daemon.
func TestTheHostNetworkOfTheDevicePluginReachesTheMPSDaemon(t *testing.T) {
	for _, on := range []bool{true, false} {
		s := situation{nodes: []nodeinfo.Facts{mpsNode()}, spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{
			ContainerSpec: v1.ContainerSpec{HostNetwork: &on}, Config: &v1.DevicePluginConfigSpec{Name: "configs"},
		}}}
		for _, name := range []operand.Name{"device-plugin", "mps-control-daemon"} {
			if got := s.daemonSet(t, name).Spec.Template.Spec.HostNetwork; got != on {
				t.Errorf("%s: host network %t, want %t", name, got, on)
			}
		}
	}
}

// A driver on the host is below hostPaths.rootFS, which the toolkit reads from the marker of the validation.
func TestTheValidationKnowsTheRootOfTheHost(t *testing.T) {
	for rootFS, want := range map[string]bool{"": false, "/": false, "/mnt/host": true} {
		s := situation{spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{RootFS: rootFS}}}
		args := container(t, s.daemonSet(t, "container-toolkit"), "driver-validation").Args
		if got := slices.Contains(args, "--root-fs=/mnt/host"); got != want {
			t.Errorf("%q: %q", rootFS, args)
		}
	}
}

// USE_NODE_FEATURE_API in gfd.env decides where GPU Feature Discovery writes its labels, and whether it gets a token.
func TestTheNodeFeatureAPIOfTheEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		mode  v1.DiscoveryMode
		value string
		want  bool
	}{
		"on":                   {v1.DiscoveryBuiltin, "true", true},
		"on, as a number":      {v1.DiscoveryBuiltin, "1", true},
		"off":                  {v1.DiscoveryBuiltin, "false", false},
		"off, with mode nfd":   {v1.DiscoveryNFD, "false", false},
		"on, with mode nfd":    {v1.DiscoveryNFD, "true", true},
		"unset":                {v1.DiscoveryBuiltin, "", false},
		"unset, with mode nfd": {v1.DiscoveryNFD, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: test.mode}, GFD: &v1.GFDSpec{}}
			if test.value != "" {
				spec.GFD.Env = []v1.EnvVar{{Name: "USE_NODE_FEATURE_API", Value: test.value}}
			}
			ds := situation{spec: spec}.daemonSet(t, "gpu-feature-discovery")
			if got := *ds.Spec.Template.Spec.AutomountServiceAccountToken; got != test.want {
				t.Errorf("token %t, want %t", got, test.want)
			}
			values := valuesOf(container(t, ds, "gpu-feature-discovery"), "USE_NODE_FEATURE_API")
			if writesFile := slices.Equal(values, []string{"false"}); writesFile == test.want {
				t.Errorf("variable %q", values)
			}
		})
	}
}

// valuesOf returns the values of a variable, of which the last one counts.
func valuesOf(c corev1.Container, name string) (values []string) {
	for _, variable := range c.Env {
		if variable.Name == name {
			values = append(values, variable.Value)
		}
	}
	return values
}

// The toolkit's runtime is the handler of the RuntimeClass, whatever toolkit.env says.
func TestTheRuntimeClassOfTheOperatorTakesPrecedence(t *testing.T) {
	for _, class := range []string{"", "gpu"} {
		s := situation{spec: v1.ClusterPolicySpec{
			Operator: &v1.OperatorSpec{RuntimeClass: class},
			Toolkit: &v1.ToolkitSpec{ContainerSpec: v1.ContainerSpec{
				Env: []v1.EnvVar{{Name: "CONTAINERD_RUNTIME_CLASS", Value: "mine"}},
			}},
		}}
		toolkit := container(t, s.daemonSet(t, "container-toolkit"), "nvidia-container-toolkit-ctr")
		want := []string{*s.daemonSet(t, "device-plugin").Spec.Template.Spec.RuntimeClassName}
		if got := valuesOf(toolkit, "CONTAINERD_RUNTIME_CLASS"); !slices.Equal(got, want) {
			t.Errorf("%q, but the pods have %q", got, want)
		}
	}
}

// The only DaemonSet of the driver or the toolkit has the name that NVIDIA's operator gives it, whatever the system and
// the container runtime are: scripts wait for it by this name.
func TestTheOnlyDaemonSetHasNVIDIAsName(t *testing.T) {
	const release = "418.94.202501221327-0"
	for name, test := range map[string]situation{
		"ubuntu, containerd": {},
		"rhel, CRI-O":        {nodes: []nodeinfo.Facts{withRuntime("cri-o", node("rhel", "9.6"))}},
		"sles, docker":       {nodes: []nodeinfo.Facts{withRuntime("docker", node("sles", "15.6"))}},
		"k3s":                {nodes: []nodeinfo.Facts{runs("containerd", "k3s")}},
		"rke2":               {nodes: []nodeinfo.Facts{runs("containerd", "rke2")}},
		"microk8s":           {nodes: []nodeinfo.Facts{runs("containerd", "microk8s")}},
		"OpenShift": {
			nodes: []nodeinfo.Facts{coreOS(release)}, toolkit: map[string]string{release: "example.com/toolkit:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for operandName, want := range map[operand.Name]string{
				"driver": "nvidia-driver-daemonset", "container-toolkit": "nvidia-container-toolkit-daemonset",
			} {
				ds := test.daemonSet(t, operandName)
				if ds.Name != want || ds.Spec.Selector.MatchLabels["app"] != want {
					t.Errorf("DaemonSet %s selects %v, want %s", ds.Name, ds.Spec.Selector.MatchLabels, want)
				}
			}
		})
	}
}

func withRuntime(runtime string, facts nodeinfo.Facts) nodeinfo.Facts {
	facts.Runtime = runtime
	return facts
}

// The bundle of spec.global.caBundle is where the package managers of the driver's containers read certificates: they
// do not read SSL_CERT_FILE. A certificate of the user's in the same file takes precedence.
func TestPackageManagersTrustTheCABundle(t *testing.T) {
	const fedora, caBundle = "/etc/pki/ca-trust/extracted/pem/", "gpu-operator-ca-bundle/ca-bundle.crt"
	spec := v1.ClusterPolicySpec{
		Global: &v1.GlobalSpec{CABundle: &v1.CABundleSpec{ConfigMapName: "gpu-operator-trusted-ca"}},
		GDS:    &v1.GDSSpec{Enabled: new(true)}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
		Driver: &v1.DriverSpec{},
	}
	certified := *spec.DeepCopy()
	certified.Driver.CertConfig = &v1.DriverCertConfigSpec{Name: "certs"}
	for name, test := range map[string]struct {
		spec      v1.ClusterPolicySpec
		node      nodeinfo.Facts
		directory string
		want      map[string]string
	}{
		"rhel": {spec, node("rhel", "9.6"), fedora, map[string]string{fedora + "tls-ca-bundle.pem": caBundle}},
		"rhel, with a file of the user's": {
			certified, node("rhel", "9.6"), fedora,
			map[string]string{fedora + "tls-ca-bundle.pem": "cert-config/tls-ca-bundle.pem"},
		},
		"ubuntu": {
			spec, node("ubuntu", "24.04"), "/usr/local/share/ca-certificates/",
			map[string]string{"/usr/local/share/ca-certificates/gpu-operator-ca-bundle.crt": caBundle},
		},
		"sles": {
			spec, node("sles", "15.6"), "/etc/pki/trust/anchors/",
			map[string]string{"/etc/pki/trust/anchors/gpu-operator-ca-bundle.pem": caBundle},
		},
		"without a bundle": {v1.ClusterPolicySpec{
			GDS: spec.GDS, GDRCopy: spec.GDRCopy,
		}, node("rhel", "9.6"), fedora, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation{
				spec: test.spec, nodes: []nodeinfo.Facts{test.node},
				configMaps: map[string][]string{"certs": {"tls-ca-bundle.pem"}},
			}
			ds := s.daemonSet(t, "driver")
			for _, of := range []string{"nvidia-driver-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"} {
				if diff := cmp.Diff(test.want, mountedFiles(container(t, ds, of), test.directory)); diff != "" {
					t.Errorf("%s: -want +got:\n%s", of, diff)
				}
			}
		})
	}
}
