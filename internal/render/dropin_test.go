package render_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// These tests compare with what NVIDIA's operator renders, where users or NVIDIA's images rely on it.

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
