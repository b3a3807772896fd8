package render_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// What is impossible in the pods of one operand alone is refused with its field: the API server would refuse the
// DaemonSet. Other operands are applied.
func TestWhatIsImpossibleInSomePods(t *testing.T) {
	sysctls := func(name string) *v1.DaemonSetsSpec {
		return &v1.DaemonSetsSpec{PodSecurityContext: &corev1.PodSecurityContext{
			Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}},
		}}
	}
	onHost := &v1.DCGMExporterSpec{ContainerSpec: v1.ContainerSpec{HostNetwork: new(true)}}
	profile := v1.Annotations{"container.apparmor.security.beta.kubernetes.io/nvidia-dcgm-exporter": "unconfined"}
	for want, test := range map[string]struct {
		spec     v1.ClusterPolicySpec
		operands []operand.Name
	}{
		"spec.toolkit.installDir: container ": {
			v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{InstallDir: "/run/nvidia/validations"}},
			[]operand.Name{"container-toolkit"},
		},
		"spec.daemonsets.podSecurityContext: net.core.somaxconn is not possible in the pods of dcgm-exporter": {
			v1.ClusterPolicySpec{DaemonSets: sysctls("net.core.somaxconn"), DCGMExporter: onHost},
			[]operand.Name{"dcgm-exporter"},
		},
		"a parameter of the pods' own namespaces": {
			v1.ClusterPolicySpec{DaemonSets: sysctls("net.core.somaxconn")}, nil,
		},
		"kernel.shm_rmid_forced is not possible in the pods of mig-manager, which have the host's IPC: ": {
			v1.ClusterPolicySpec{DaemonSets: sysctls("kernel.shm_rmid_forced"), DCGMExporter: onHost},
			[]operand.Name{"mig-manager"},
		},
		"spec.gfd.annotations: container.apparmor.security.beta.kubernetes.io/nvidia-dcgm-exporter is for a container ": {
			v1.ClusterPolicySpec{
				DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: v1.PlacementSpec{Annotations: profile}},
				GFD:          &v1.GFDSpec{PlacementSpec: v1.PlacementSpec{Annotations: profile}},
			},
			[]operand.Name{"gpu-feature-discovery"},
		},
		"other directories": {
			v1.ClusterPolicySpec{HostPaths: &v1.HostPathsSpec{DriverInstallDir: "/opt/driver", KubeletRootDir: "/data/kubelet"}},
			nil,
		},
	} {
		p := situation{spec: test.spec}.plan(t)
		var refused []operand.Name
		for _, step := range p.Steps {
			if step.Action != plan.Apply {
				continue
			}
			_, err := render.Step(p, step, owner, nil)
			if err == nil {
				continue
			}
			refused = append(refused, step.Operand.Name)
			if !errors.As(err, new(operand.InvalidSpec)) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if !slices.Equal(refused, test.operands) {
			t.Errorf("%s: refused are %v, want %v", want, refused, test.operands)
		}
	}
}
