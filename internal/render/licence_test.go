package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

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
