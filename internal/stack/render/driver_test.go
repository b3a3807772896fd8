package render_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

func container(t *testing.T, ds *appsv1.DaemonSet, name string) corev1.Container {
	t.Helper()
	all := containers(&ds.Spec.Template.Spec)
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("%s has no container %s", ds.Name, name)
	}
	return all[at]
}

// Two systems, two kernels and two architectures in one cluster: each pool has its image, and no two share a DaemonSet
// or nodes.
func TestEachPoolHasItsDriver(t *testing.T) {
	nodes := []nodeinfo.Facts{
		onKernel(
			node("ubuntu", "24.04"),
			"amd64",
			"6.8.0-51-generic",
		), onKernel(node("ubuntu", "24.04"), "amd64", "6.8.0-52-generic"),
		onKernel(
			node("ubuntu", "24.04"),
			"arm64",
			"6.8.0-51-generic",
		), onKernel(node("rhel", "9.6"), "amd64", "5.14.0-503.el9_5.x86_64"),
		onKernel(
			node("rhel", "9.6"),
			"arm64",
			"5.14.0-503.el9_5.aarch64",
		), onKernel(node("rhel", "9.4"), "amd64", "5.14.0-503.el9_5.x86_64"),
	}
	tests := map[string]struct {
		driver *v1.DriverSpec
		want   map[string]string
	}{
		"built": {want: map[string]string{
			"ubuntu24.04-amd64": "595.91.07-ubuntu24.04", "ubuntu24.04-arm64": "595.91.07-ubuntu24.04",
			"rhel9-amd64": "595.91.07-rhel9", "rhel9-arm64": "595.91.07-rhel9",
		}},
		"precompiled": {
			driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "595"}},
			want: map[string]string{
				"ubuntu24.04-amd64-6.8.0-51-generic":   "595-6.8.0-51-generic-ubuntu24.04",
				"ubuntu24.04-amd64-6.8.0-52-generic":   "595-6.8.0-52-generic-ubuntu24.04",
				"ubuntu24.04-arm64-6.8.0-51-generic":   "595-6.8.0-51-generic-ubuntu24.04",
				"rhel9-amd64-5.14.0-503.el9_5.x86_64":  "595-5.14.0-503.el9_5.x86_64-rhel9",
				"rhel9-arm64-5.14.0-503.el9_5.aarch64": "595-5.14.0-503.el9_5.aarch64-rhel9",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, names := map[string]string{}, map[string]bool{}
			s := situation{spec: v1.ClusterPolicySpec{Driver: test.driver}, nodes: nodes}
			for _, ds := range s.daemonSets(t)["driver"] {
				pool := ds.Spec.Template.Labels["nvidia.com/gpu-operator.pool"]
				app := ds.Spec.Template.Labels["app"]
				if names[app] || !maps.Equal(ds.Spec.Selector.MatchLabels, map[string]string{"app": app}) {
					t.Errorf("%s is a duplicate, or selects the pods of others: %v", ds.Name, ds.Spec.Selector.MatchLabels)
				}
				names[app] = true
				got[pool] = strings.TrimPrefix(container(t, ds, "nvidia-driver-ctr").Image, "nvcr.io/nvidia/driver:")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A field without an effect would be silently ignored.
func TestEveryFieldOfTheDriverChangesThePods(t *testing.T) {
	keys := map[string][]string{"a": {"nvidia.conf", "gridd.conf", "nvidia-topologyd.conf"}}
	before := toYAML(t, situation{configMaps: keys}.objects(t)["driver"])
	tests := map[string]v1.ClusterPolicySpec{
		"gds": {GDS: &v1.GDSSpec{Enabled: new(true)}}, "gdrcopy": {GDRCopy: &v1.GDRCopySpec{Enabled: new(true)}},
	}
	for name, spec := range map[string]v1.DriverSpec{
		"rdma":                          {RDMA: &v1.RDMASpec{Enabled: new(true)}},
		"livenessProbe":                 {LivenessProbe: &v1.ProbeSpec{PeriodSeconds: 30}},
		"readinessProbe":                {ReadinessProbe: &v1.ProbeSpec{PeriodSeconds: 30}},
		"repoConfig":                    {RepoConfig: &v1.DriverRepoConfigSpec{ConfigMapName: "a"}},
		"certConfig":                    {CertConfig: &v1.DriverCertConfigSpec{Name: "a"}},
		"licensingConfig.secretName":    {LicensingConfig: &v1.DriverLicensingConfigSpec{SecretName: "a"}},
		"licensingConfig.configMapName": {LicensingConfig: &v1.DriverLicensingConfigSpec{ConfigMapName: "a"}},
		"virtualTopology":               {VirtualTopology: &v1.VirtualTopologyConfigSpec{Config: "a"}},
		"kernelModuleConfig":            {KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "a"}},
		"secretEnv":                     {SecretEnv: "a"},
	} {
		tests[name] = v1.ClusterPolicySpec{Driver: &spec}
	}
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			if toYAML(t, situation{spec: spec, configMaps: keys}.objects(t)["driver"]) == before {
				t.Error("changes nothing")
			}
		})
	}
}
