package render_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var ofRuntime = regexp.MustCompile("^(RUNTIME|CRIO|CONTAINERD|DOCKER|NRI_SOCKET|ENABLE)")

// runtimeAccess returns the variables and host directories with which the toolkit accesses the container runtime.
func runtimeAccess(ds *appsv1.DaemonSet) []string {
	pod := ds.Spec.Template.Spec
	at := slices.IndexFunc(
		pod.Containers,
		func(c corev1.Container) bool { return c.Name == "nvidia-container-toolkit-ctr" },
	)
	var lines []string
	for _, e := range pod.Containers[at].Env {
		if ofRuntime.MatchString(e.Name) {
			lines = append(lines, e.Name+"="+e.Value)
		}
	}
	for _, mount := range pod.Containers[at].VolumeMounts {
		if path.Dir(mount.MountPath) != "/runtime" && mount.Name != "crio-hooks" {
			continue
		}
		for _, volume := range pod.Volumes {
			if volume.Name == mount.Name {
				lines = append(lines, fmt.Sprintf("%s: %s on %s", mount.Name, volume.HostPath.Path, mount.MountPath))
			}
		}
	}
	return lines
}

const (
	hooksBelowRun = "crio-hooks: /run/containers/oci/hooks.d on /usr/share/containers/oci/hooks.d"
	hooksOfHost   = "crio-hooks: /usr/share/containers/oci/hooks.d on /usr/share/containers/oci/hooks.d"
)

// containerdAt is the access to a containerd with these files, as configured by NVIDIA's operator.
func containerdAt(config, dropIn, socketDir string, more ...string) []string {
	return slices.Concat([]string{
		"RUNTIME=containerd", "CONTAINERD_RUNTIME_CLASS=nvidia",
		"RUNTIME_CONFIG=/runtime/config-dir/" + path.Base(
			config,
		), "CONTAINERD_CONFIG=/runtime/config-dir/" + path.Base(config),
		"RUNTIME_DROP_IN_CONFIG=/runtime/config-dir.d/" + path.Base(dropIn), "RUNTIME_DROP_IN_CONFIG_HOST_PATH=" + dropIn,
		"RUNTIME_SOCKET=/runtime/sock-dir/containerd.sock", "CONTAINERD_SOCKET=/runtime/sock-dir/containerd.sock",
	}, more, []string{
		"CRIO_CONFIG_MODE=config", hooksBelowRun,
		"containerd-config: " + path.Dir(config) + " on /runtime/config-dir",
		"containerd-drop-in-config: " + path.Dir(dropIn) + " on /runtime/config-dir.d",
		"containerd-socket: " + socketDir + " on /runtime/sock-dir",
	})
}

func crioWith(hooks string) []string {
	return []string{
		"RUNTIME=crio", "RUNTIME_CONFIG=/runtime/config-dir/config.toml", "CRIO_CONFIG=/runtime/config-dir/config.toml",
		"RUNTIME_DROP_IN_CONFIG=/runtime/config-dir.d/99-nvidia.conf",
		"RUNTIME_DROP_IN_CONFIG_HOST_PATH=/etc/crio/crio.conf.d/99-nvidia.conf",
		"CRIO_CONFIG_MODE=config", hooks,
		"crio-config: /etc/crio on /runtime/config-dir",
		"crio-drop-in-config: /etc/crio/crio.conf.d on /runtime/config-dir.d",
	}
}

// Each layout has its own DaemonSet for its nodes, independent of the other layouts in the cluster.
func TestLayoutsOfTheToolkit(t *testing.T) {
	const (
		k3s  = "/var/lib/rancher/k3s/agent/etc/containerd"
		rke2 = "/var/lib/rancher/rke2/agent/etc/containerd"
		snap = "/var/snap/microk8s"
		own  = "/etc/containerd/config.toml"
		// containerd's own drop-in.
		ownDropIn = "/etc/containerd/conf.d/99-nvidia.toml"
	)
	want := map[string][]string{
		"containerd":      containerdAt(own, ownDropIn, "/run/containerd"),
		"containerd-file": containerdAt(own, ownDropIn, "/run/containerd", "RUNTIME_CONFIG_SOURCE=file"),
		"gke":             containerdAt(own, ownDropIn, "/run/containerd", "RUNTIME_CONFIG_SOURCE=file"),
		"k3s": containerdAt(k3s+"/config.toml", k3s+"/config-v3.toml.d/99-nvidia.toml", "/run/k3s/containerd",
			"RUNTIME_CONFIG_SOURCE=file=/host"+k3s+"/config.toml"),
		"rke2": containerdAt(rke2+"/config.toml", rke2+"/config-v3.toml.d/99-nvidia.toml", "/run/k3s/containerd",
			"RUNTIME_CONFIG_SOURCE=file=/host"+rke2+"/config.toml"),
		"k0s": containerdAt("/run/nvidia/toolkit/k0s-unused.toml", "/etc/k0s/containerd.d/nvidia.toml", "/run/k0s",
			"RUNTIME_EXECUTABLE_PATH=/var/lib/k0s/bin/containerd"),
		"microk8s": containerdAt(snap+"/current/args/containerd-template.toml", ownDropIn, snap+"/common/run",
			"RUNTIME_CONFIG_SOURCE=file=/host"+snap+"/current/args/containerd.toml"),
		"crio":      crioWith(hooksOfHost),
		"openshift": crioWith(hooksBelowRun),
		"docker": {
			"RUNTIME=docker", "RUNTIME_CONFIG=/runtime/config-dir/daemon.json", "DOCKER_CONFIG=/runtime/config-dir/daemon.json",
			"RUNTIME_SOCKET=/runtime/sock-dir/docker.sock", "DOCKER_SOCKET=/runtime/sock-dir/docker.sock",
			"CRIO_CONFIG_MODE=config", hooksBelowRun,
			"docker-config: /etc/docker on /runtime/config-dir", "docker-socket: /var/run on /runtime/sock-dir",
		},
	}
	together := scenarios["layouts"].situation
	g := NewWithT(t)
	got := map[string][]string{}
	for _, ds := range together.daemonSets(t)["container-toolkit"] {
		got[layoutOf(ds)] = runtimeAccess(ds)
		suffix := strings.TrimPrefix(ds.Name, "nvidia-container-toolkit-daemonset")
		g.Expect(strings.TrimPrefix(suffix, "-")).To(Equal(strings.TrimSuffix(layoutOf(ds), "containerd")))
	}
	g.Expect(got).To(Equal(want))
	for _, facts := range together.nodes {
		alone := situation{nodes: []nodeinfo.Facts{facts}}
		for _, ds := range alone.daemonSets(t)["container-toolkit"] {
			g.Expect(runtimeAccess(ds)).To(Equal(want[layoutOf(ds)]), layoutOf(ds))
			g.Expect(ds.Name).To(Equal("nvidia-container-toolkit-daemonset"), "the first one, whichever it is")
		}
	}
}

// layoutOf is the layout of the container runtime on the nodes of a toolkit's DaemonSet.
func layoutOf(ds *appsv1.DaemonSet) string {
	return ds.Spec.Template.Labels["nvidia.com/gpu-operator.runtime"]
}

// Paths in the spec are mounted where the toolkit looks for them, and sources are read from the host's root.
func TestPathsOfTheSpec(t *testing.T) {
	g := NewWithT(t)
	sets := scenarios["runtime-paths"].daemonSets(t)["container-toolkit"]
	g.Expect(sets).To(HaveLen(2))
	for _, ds := range sets {
		g.Expect(runtimeAccess(ds)).To(Equal([]string{
			"RUNTIME=containerd", "CONTAINERD_RUNTIME_CLASS=nvidia",
			"RUNTIME_CONFIG=/runtime/config-dir/main.toml", "CONTAINERD_CONFIG=/runtime/config-dir/main.toml",
			"RUNTIME_DROP_IN_CONFIG=/runtime/config-dir.d/50-gpu.toml",
			"RUNTIME_DROP_IN_CONFIG_HOST_PATH=/opt/containerd/etc/d/50-gpu.toml",
			"RUNTIME_SOCKET=/runtime/sock-dir/c.sock", "CONTAINERD_SOCKET=/runtime/sock-dir/c.sock",
			"RUNTIME_CONFIG_SOURCE=command,file=/host/opt/containerd/etc/main.toml",
			"RUNTIME_EXECUTABLE_PATH=/opt/containerd/bin/containerd",
			"CRIO_CONFIG_MODE=config", hooksBelowRun,
			"containerd-config: /opt/containerd/etc on /runtime/config-dir",
			"containerd-drop-in-config: /opt/containerd/etc/d on /runtime/config-dir.d",
			"containerd-socket: /opt/containerd/run on /runtime/sock-dir",
		}))
	}
}

// With NRI, the toolkit does not touch files of the runtime, and no pod has a RuntimeClass: each container that needs a
// GPU is annotated instead.
func TestInjectionByNRI(t *testing.T) {
	g := NewWithT(t)
	s := scenarios["nri"]
	g.Expect(s.objects(t)).NotTo(HaveKey(operand.Name("runtime-classes")), "RuntimeClasses are pruned")
	for _, ds := range s.daemonSets(t)["container-toolkit"] {
		found := runtimeAccess(ds)
		g.Expect(found).To(ContainElements(
			"ENABLE_NRI_PLUGIN=true",
			"NRI_SOCKET=/runtime/nri-sock-dir/nri.sock",
			"nri-socket: /var/run/nri on /runtime/nri-sock-dir",
		))
		g.Expect(found).NotTo(ContainElement(Or(
			ContainSubstring("CONFIG="), ContainSubstring("config-dir"),
			ContainSubstring("/runtime/sock-dir"), ContainSubstring("hooks"),
		)))
	}
	annotated := map[string][]string{}
	for name, sets := range s.daemonSets(t) {
		for _, ds := range sets {
			for key, value := range ds.Spec.Template.Annotations {
				if container, isNRI := strings.CutPrefix(key, "nvidia.cdi.k8s.io/container."); isNRI {
					g.Expect(value).To(Equal("management.nvidia.com/gpu=all"))
					annotated[string(name)] = append(annotated[string(name)], container)
				}
			}
			slices.Sort(annotated[string(name)])
		}
	}
	g.Expect(annotated).To(HaveKeyWithValue("device-plugin", []string{"nvidia-device-plugin"}))
	g.Expect(annotated).To(HaveKeyWithValue("operator-validator", []string{"cuda-validation", "toolkit-validation"}))
	g.Expect(annotated).NotTo(Or(HaveKey("driver"), HaveKey("container-toolkit"), HaveKey("node-discovery")))
}

// In every mode, GPUs are injected in exactly one way, and only into the pods that need them.
func TestEveryInjectedPodIsInjectedInOneWay(t *testing.T) {
	cdiOff := v1.ClusterPolicySpec{CDI: &v1.CDISpec{Enabled: new(false)}}
	tests := map[string]struct {
		situation
		class, annotations bool
	}{
		"a RuntimeClass":       {class: true},
		"NRI":                  {situation: scenarios["nri"].situation, annotations: true},
		"a hook":               {situation: scenarios["hook"].situation},
		"a hook of OpenShift":  {situation: situation{spec: cdiOff, nodes: []nodeinfo.Facts{runs("cri-o", "openshift")}}},
		"CRI-O and containerd": {situation: scenarios["hook-and-class"].situation, class: true},
		"containerd, no CDI":   {situation: situation{spec: cdiOff}, class: true},
		"CRI-O with CDI":       {situation: situation{nodes: []nodeinfo.Facts{runs("cri-o", "")}}, class: true},
		"NRI with CDI disabled": {
			situation: situation{spec: v1.ClusterPolicySpec{CDI: &v1.CDISpec{Enabled: new(false), NRIPluginEnabled: new(true)}}},
			class:     true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			injected := map[operand.Name]bool{}
			for _, o := range catalogue(t) {
				injected[o.Name] = o.NeedsInjection
			}
			for name, sets := range test.daemonSets(t) {
				for _, ds := range sets {
					g := NewWithT(t)
					g.Expect(ds.Spec.Template.Spec.RuntimeClassName != nil).To(Equal(test.class && injected[name]), ds.Name)
					has := slices.ContainsFunc(slices.Collect(maps.Keys(ds.Spec.Template.Annotations)), func(key string) bool {
						return strings.HasPrefix(key, "nvidia.cdi.k8s.io/")
					})
					g.Expect(has).To(Equal(test.annotations && injected[name]), ds.Name)
				}
			}
		})
	}
}
