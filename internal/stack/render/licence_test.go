package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// mountedFiles returns the mounts of a container below these directories, by path: volume and key, if it is of a file.
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
				"/drivers/ClientConfigToken": "licensing-token/",
				"/drivers/gridd.conf":        "licensing-config/gridd.conf",
				"/drivers/nvidia.conf":       "module-config/nvidia.conf",
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

// licensed is a driver with a licence in a Secret with these data.
func licensed(gridd, token string) situation {
	const secret = "licence"
	return situation{
		spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
			LicensingConfig: &v1.DriverLicensingConfigSpec{SecretName: secret, NLSEnabled: new(true)},
		}},
		contents: map[operand.Reference]operand.Content{{Kind: operand.Secret, Name: secret}: {
			Digest: gridd + token, Keys: []string{"client_configuration_token.tok", "gridd.conf"},
			KeyDigests: map[string]string{"client_configuration_token.tok": token, "gridd.conf": gridd},
		}},
	}
}

// A rotated token makes no driver outdated. Another configuration of the licence does.
func TestARotatedTokenMakesNoDriverOutdated(t *testing.T) {
	before := digest(t, licensed("a", "1"), "driver")
	if digest(t, licensed("a", "2"), "driver") != before {
		t.Error("a rotated token makes drivers outdated")
	}
	if digest(t, licensed("b", "1"), "driver") == before {
		t.Error("another configuration does not make drivers outdated")
	}
}
