package effective_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestPaths(t *testing.T) {
	defaults := effective.HostPaths{
		RootFS:            "/",
		DevChar:           "/dev/char",
		DriverInstallDir:  "/run/nvidia/driver",
		ToolkitInstallDir: "/usr/local/nvidia",
		KubeletRootDir:    "/var/lib/kubelet",
	}
	with := func(change func(*effective.HostPaths)) effective.HostPaths {
		paths := defaults
		change(&paths)
		return paths
	}
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want effective.HostPaths
	}{
		"no blocks": {want: defaults},
		"empty blocks": {
			spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{}, Toolkit: &v1.ToolkitSpec{}},
			want: defaults,
		},
		"the default root": {spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{RootFS: "/"}}, want: defaults},
		"rootFS moves the root and the links to devices": {
			spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{RootFS: "/mnt/host"}},
			want: with(func(p *effective.HostPaths) { p.RootFS, p.DevChar = "/mnt/host", "/mnt/host/dev/char" }),
		},
		"driverInstallDir moves the driver": {
			spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{DriverInstallDir: "/opt/driver"}},
			want: with(func(p *effective.HostPaths) { p.DriverInstallDir = "/opt/driver" }),
		},
		"toolkit.installDir moves the toolkit": {
			spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{InstallDir: "/opt/toolkit"}},
			want: with(func(p *effective.HostPaths) { p.ToolkitInstallDir = "/opt/toolkit" }),
		},
		"kubeletRootDir moves the kubelet, and may end in a slash": {
			spec: v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{KubeletRootDir: "/data/kubelet/"}},
			want: with(func(p *effective.HostPaths) { p.KubeletRootDir = "/data/kubelet" }),
		},
		"all together": {
			spec: v1.ClusterPolicySpec{
				HostPaths: &v1.HostPathsSpec{RootFS: "/h", DriverInstallDir: "/d", KubeletRootDir: "/k"},
				Toolkit:   &v1.ToolkitSpec{InstallDir: "/t"},
			},
			want: effective.HostPaths{
				RootFS: "/h", DevChar: "/h/dev/char", DriverInstallDir: "/d", ToolkitInstallDir: "/t", KubeletRootDir: "/k",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := effective.Of(test.spec).Paths()
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
