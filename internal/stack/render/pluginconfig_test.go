package render_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// readersOfPluginConfig returns the DaemonSets that read the device plugin's configuration.
func readersOfPluginConfig(t *testing.T) map[operand.Name]*appsv1.DaemonSet {
	t.Helper()
	sets := scenarios["shared-gpus"].daemonSets(t)
	found := map[operand.Name]*appsv1.DaemonSet{}
	for _, name := range []operand.Name{"device-plugin", "gpu-feature-discovery", "mps-control-daemon"} {
		if len(sets[name]) != 1 {
			t.Fatalf("%s has %d DaemonSets", name, len(sets[name]))
		}
		found[name] = sets[name][0]
	}
	return found
}

// The process is found by its exact argv[0], and only in the same PID namespace. If none is found, the new
// configuration is not read.
func TestConfigManagerFindsTheProcessThatItSignals(t *testing.T) {
	for name, ds := range readersOfPluginConfig(t) {
		t.Run(string(name), func(t *testing.T) {
			pod := ds.Spec.Template.Spec
			if !pod.HostPID && (pod.ShareProcessNamespace == nil || !*pod.ShareProcessNamespace) {
				t.Error("the containers do not see each other's processes")
			}
			if pod.HostPID && pod.ShareProcessNamespace != nil {
				t.Error("the API server refuses a pod that shares both namespaces")
			}
			argv := pod.Containers[0].Command
			if end := slices.Index(argv, "--"); end >= 0 {
				argv = argv[end+1:] // gpu-node becomes what follows.
			}
			if process := variable(pod.Containers[1], "PROCESS_TO_SIGNAL"); process != argv[0] {
				t.Errorf("config-manager looks for %q, the program is started as %q", process, argv[0])
			}
		})
	}
}

// The program must start with the configuration of its node.
func TestTheConfigurationIsChosenBeforeTheProgramStarts(t *testing.T) {
	for name, ds := range readersOfPluginConfig(t) {
		t.Run(string(name), func(t *testing.T) {
			pod := ds.Spec.Template.Spec
			once := pod.InitContainers[len(pod.InitContainers)-1]
			if once.Name != "config-manager-init" || variable(once, "ONESHOT") != "true" ||
				variable(once, "SEND_SIGNAL") != "false" {
				t.Errorf("the last init container is %s, with %v", once.Name, once.Env)
			}
			file := variable(pod.Containers[0], "CONFIG_FILE")
			for _, c := range []corev1.Container{once, pod.Containers[1]} {
				if variable(c, "CONFIG_FILE_DST") != file || file == "" {
					t.Errorf("%s writes %q, the program reads %q", c.Name, variable(c, "CONFIG_FILE_DST"), file)
				}
			}
		})
	}
}

// The tokens can read nodes, so pods without config-manager get none.
func TestOnlyConfigManagerGetsAToken(t *testing.T) {
	for name, ds := range readersOfPluginConfig(t) {
		if token := ds.Spec.Template.Spec.AutomountServiceAccountToken; token == nil || !*token {
			t.Errorf("%s: config-manager has no token", name)
		}
	}
	for name, sets := range scenarios["default"].daemonSets(t) {
		if name != "device-plugin" && name != "gpu-feature-discovery" {
			continue
		}
		if token := sets[0].Spec.Template.Spec.AutomountServiceAccountToken; token == nil || *token {
			t.Errorf("%s has a token without config-manager", name)
		}
	}
}

func variable(container corev1.Container, name string) string {
	for _, have := range container.Env {
		if have.Name == name {
			return have.Value
		}
	}
	return ""
}

// A configuration from spec.sharing is part of the pods: another one replaces them, and only those that read it.
func TestPodsHaveTheirSharing(t *testing.T) {
	shared := func(replicas int32) map[operand.Name]*appsv1.DaemonSet {
		found := map[operand.Name]*appsv1.DaemonSet{}
		spec := v1.ClusterPolicySpec{Sharing: &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: replicas}}}
		for name, sets := range (situation{spec: spec}).daemonSets(t) {
			found[name] = sets[0]
		}
		return found
	}
	two, four := shared(2), shared(4)
	for name, ds := range two {
		t.Run(string(name), func(t *testing.T) {
			template := &ds.Spec.Template
			content, reads := template.Annotations["nvidia.com/gpu-operator.plugin-config"]
			if want := name == "device-plugin" || name == "gpu-feature-discovery"; reads != want {
				t.Fatalf("reads a configuration: %t", reads)
			}
			const digest = "nvidia.com/gpu-operator.template-digest"
			if changes := ds.Annotations[digest] != four[name].Annotations[digest]; changes != reads {
				t.Errorf("another number of shares replaces its pods: %t", changes)
			}
			if !reads {
				return
			}
			checkMountedConfig(t, template, content)
		})
	}
}

// checkMountedConfig checks that the main container reads the configuration from the annotation of its pod.
func checkMountedConfig(t *testing.T, template *corev1.PodTemplateSpec, content string) {
	t.Helper()
	if !strings.Contains(content, "replicas: 2") || variable(template.Spec.Containers[0], "CONFIG_FILE") == "" {
		t.Errorf("%s reads %q", variable(template.Spec.Containers[0], "CONFIG_FILE"), content)
	}
	if len(template.Spec.Containers) != 1 || template.Spec.ShareProcessNamespace != nil {
		t.Error("config-manager runs, and would follow the node's label")
	}
	mounted := slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.DownwardAPI != nil && v.DownwardAPI.Items[0].FieldRef.FieldPath ==
			"metadata.annotations['nvidia.com/gpu-operator.plugin-config']"
	})
	if !mounted {
		t.Error("the annotation is not mounted")
	}
}
