package containertoolkit_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/containertoolkit"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func toolkit(env ...string) v1.ClusterPolicySpec {
	spec := &v1.ToolkitSpec{}
	for i := 0; i < len(env); i += 2 {
		spec.Env = append(spec.Env, v1.EnvVar{Name: env[i], Value: env[i+1]})
	}
	return v1.ClusterPolicySpec{Toolkit: spec}
}

var nri = v1.ClusterPolicySpec{CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}}

func TestWhichNodesAreServed(t *testing.T) {
	const (
		preInstalled = "install the toolkit on the host and set the node's label " +
			"nvidia.com/gpu.deploy.container-toolkit to pre-installed"
		unknown = "NotSupportedYet: the paths of containerd's files on talos are unknown: set CONTAINERD_CONFIG and " +
			"CONTAINERD_SOCKET in spec.toolkit.env, set spec.cdi.nriPluginEnabled, or " + preInstalled
		k3sFinds = "InvalidSpec: k3s expects the toolkit in /usr/local/nvidia and names its runtime nvidia: " +
			"remove spec.toolkit.installDir and spec.operator.runtimeClass, or set spec.cdi.nriPluginEnabled"
		tooOld = "NotSupportedYet: spec.cdi.nriPluginEnabled needs containerd 1.7.30, 2.1 or newer, " +
			"or CRI-O 1.34 or newer, but the node has "
		update = ": update the runtime, or remove spec.cdi.nriPluginEnabled"
	)
	at := func(runtime, version string, distribution nodeinfo.Distribution) nodeinfo.Facts {
		return nodeinfo.Facts{Runtime: runtime, RuntimeVersion: version, Distribution: distribution}
	}
	with := func(spec v1.ClusterPolicySpec, change func(*v1.ClusterPolicySpec)) v1.ClusterPolicySpec {
		change(&spec)
		return spec
	}
	gpuClass := func(s *v1.ClusterPolicySpec) { s.Operator = &v1.OperatorSpec{RuntimeClass: "gpu"} }
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		facts nodeinfo.Facts
		want  string
	}{
		"containerd": {facts: at("containerd", "2.1.4", "")},
		"CRI-O":      {facts: at("cri-o", "1.34.0", "")},
		"Docker":     {facts: at("docker", "28.3.3", "")},
		"k3s":        {facts: at("containerd", "2.1.4-k3s1", "k3s")},
		"another runtime": {
			facts: at("isulad", "2", ""),
			want: `NotSupportedYet: container runtime "isulad" is not supported, only containerd, CRI-O and Docker: ` +
				preInstalled,
		},
		"an unknown runtime": {want: "FactsMissing: the kubelet has not reported the node's container runtime yet"},
		"an unknown runtime, with a known layout": {
			facts: nodeinfo.Facts{Layout: "k3s"},
		},
		"unknown paths": {facts: at("containerd", "2.1.4", "talos"), want: unknown},
		"paths that the spec names": {
			spec: toolkit(
				"CONTAINERD_CONFIG",
				"/etc/cri/conf.d/20-nvidia.part",
				"CONTAINERD_SOCKET",
				"/run/containerd/containerd.sock",
			),
			facts: at("containerd", "2.1.4", "talos"),
		},
		"only one of the paths": {
			spec: toolkit(
				"CONTAINERD_CONFIG",
				"/etc/cri/conf.d/20-nvidia.part",
			), facts: at("containerd", "2.1.4", "talos"), want: unknown,
		},
		"paths of another runtime": {
			spec:  toolkit("DOCKER_CONFIG", "/etc/docker/daemon.json", "DOCKER_SOCKET", "/run/docker/docker.sock"),
			facts: at("containerd", "2.1.4", "talos"), want: unknown,
		},
		"the file that k0s has for the drop-in, as the configuration": {
			spec: toolkit("CONTAINERD_CONFIG", "/etc/k0s/containerd.d/nvidia.toml"), facts: at("containerd", "1.7.28", "k0s"),
			want: "InvalidSpec: spec.toolkit.env: /etc/k0s/containerd.d/nvidia.toml is both the configuration file of k0s " +
				"and the drop-in file that it imports: remove RUNTIME_CONFIG and CONTAINERD_CONFIG, " +
				"or set another RUNTIME_DROP_IN_CONFIG",
		},
		"the same with another drop-in": {
			spec: toolkit(
				"CONTAINERD_CONFIG", "/etc/k0s/containerd.d/nvidia.toml",
				"RUNTIME_DROP_IN_CONFIG", "/etc/k0s/containerd.d/99-nvidia.toml",
			),
			facts: at("containerd", "1.7.28", "k0s"),
		},
		"k3s would not find the toolkit": {
			spec: v1.ClusterPolicySpec{
				Toolkit: &v1.ToolkitSpec{InstallDir: "/opt/nvidia"},
			}, facts: at("containerd", "2.1.4-k3s1", "k3s"),
			want: k3sFinds,
		},
		"k3s would name its handler otherwise": {
			spec: with(toolkit(), gpuClass), facts: at("containerd", "2.1.4-k3s1", "k3s"), want: k3sFinds,
		},
		"k3s with a configuration of the user": {
			spec:  with(toolkit("CONTAINERD_CONFIG", "/var/lib/rancher/k3s/agent/etc/containerd/mine.toml"), gpuClass),
			facts: at("containerd", "2.1.4-k3s1", "k3s"),
		},
		"NRI on containerd 1.7.30": {spec: nri, facts: at("containerd", "1.7.30", "")},
		"NRI on containerd 2.1":    {spec: nri, facts: at("containerd", "2.1.0", "")},
		"NRI on k3s":               {spec: with(nri, gpuClass), facts: at("containerd", "2.1.4-k3s1", "k3s")},
		"NRI on CRI-O 1.34":        {spec: nri, facts: at("cri-o", "1.34.0", "openshift")},
		"NRI needs no paths":       {spec: nri, facts: at("containerd", "2.1.4", "talos")},
		"NRI on containerd 1.7.29": {
			spec:  nri,
			facts: at("containerd", "1.7.29", ""),
			want:  tooOld + "containerd 1.7.29" + update,
		},
		"NRI on containerd 2.0": {
			spec:  nri,
			facts: at("containerd", "2.0.9", ""),
			want:  tooOld + "containerd 2.0.9" + update,
		},
		"NRI on CRI-O 1.33": {
			spec:  nri,
			facts: at("cri-o", "1.33.5", ""),
			want:  tooOld + "cri-o 1.33.5" + update,
		},
		"NRI on Docker": {
			spec:  nri,
			facts: at("docker", "28.3.3", ""),
			want:  tooOld + "docker 28.3.3" + update,
		},
		"NRI on an invalid version": {
			spec:  nri,
			facts: at("containerd", "edge", ""),
			want:  tooOld + "containerd edge" + update,
		},
		"NRI with CDI disabled": {
			spec:  v1.ClusterPolicySpec{CDI: &v1.CDISpec{Enabled: new(false), NRIPluginEnabled: new(true)}},
			facts: at("containerd", "1.6.0", ""),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			decision := containertoolkit.Operand().ServesNode(operand.Input{Spec: effective.Of(test.spec)}, test.facts)
			got := ""
			if decision.Choice != operand.Install {
				got = decision.Reason + ": " + decision.Message
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

func TestPathsThatCannotBeMounted(t *testing.T) {
	paths := []string{
		"config.toml", "/config.toml", "/etc/../config.toml", "/etc/containerd/", "unix:///run/containerd.sock",
	}
	names := []string{"CONTAINERD_CONFIG", "RUNTIME_SOCKET", "RUNTIME_DROP_IN_CONFIG", "DOCKER_SOCKET", "CRIO_CONFIG"}
	for _, path := range paths {
		for _, name := range names {
			t.Run(name+"="+path, func(t *testing.T) {
				g := NewWithT(t)
				decision := containertoolkit.Operand().Decide(operand.Input{Spec: effective.Of(toolkit(name, path))})
				g.Expect(decision.Choice).To(Equal(operand.Refused))
				g.Expect(decision.Reason).To(Equal(v1.ReasonInvalidSpec))
				g.Expect(decision.Message).To(Equal(
					"spec.toolkit.env: " + name + ` is "` + path +
						`": it must be the absolute path of a file in a directory of the host`))
			})
		}
	}
	g := NewWithT(t)
	in := operand.Input{Spec: effective.Of(toolkit("CONTAINERD_CONFIG", "", "TOOLKIT_DEBUG", "x/../y"))}
	decision := containertoolkit.Operand().Decide(in)
	g.Expect(decision.Choice).To(Equal(operand.Install))
}

// layoutsOf returns the layouts of nodes with these runtimes.
func layoutsOf(runtimes ...string) []nodeinfo.Layout {
	var nodes []nodeinfo.Facts
	for _, runtime := range runtimes {
		nodes = append(nodes, nodeinfo.Facts{HasGPU: true, Runtime: runtime})
	}
	return nodeinfo.Layouts(nodes)
}

func TestInstancesFollowTheLayouts(t *testing.T) {
	talos := nodeinfo.Layouts([]nodeinfo.Facts{{HasGPU: true, Runtime: "containerd", Distribution: "talos"}})
	tests := map[string]struct {
		spec    v1.ClusterPolicySpec
		layouts []nodeinfo.Layout
		want    []string
		err     string
	}{
		"one runtime":   {layouts: layoutsOf("containerd"), want: []string{"-containerd"}},
		"another alone": {layouts: layoutsOf("cri-o"), want: []string{"-crio"}},
		"all": {
			layouts: layoutsOf("docker", "containerd", "cri-o"),
			want:    []string{"-containerd", "-crio", "-docker"},
		},
		"none is supported":        {layouts: talos},
		"NRI supports all layouts": {spec: nri, layouts: talos, want: []string{"-talos"}},
		"Docker has no NRI":        {spec: nri, layouts: layoutsOf("docker")},
		"paths of one runtime": {
			spec:    toolkit("RUNTIME_CONFIG", "/etc/a/b"),
			layouts: layoutsOf("containerd"),
			want:    []string{"-containerd"},
		},
		"paths of any runtime": {
			spec: toolkit("RUNTIME_CONFIG", "/etc/a/b"), layouts: layoutsOf("containerd", "cri-o"),
			err: "spec.toolkit.env: RUNTIME_CONFIG is ambiguous, as the GPU nodes have several container runtimes: " +
				"use CONTAINERD_CONFIG, CONTAINERD_SOCKET, CRIO_CONFIG, DOCKER_CONFIG and DOCKER_SOCKET",
		},
		"paths of one of several": {
			spec: toolkit(
				"CONTAINERD_CONFIG",
				"/etc/a/b",
			), layouts: layoutsOf("containerd", "cri-o"), want: []string{"-containerd", "-crio"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := operand.Input{Spec: effective.Of(test.spec), Layouts: test.layouts}
			instances, err := containertoolkit.Operand().Instances(in, nil)
			var got []string
			for _, instance := range instances {
				got = append(got, instance.Suffix)
				g.Expect(instance.Layout).NotTo(BeEmpty(), "nodes of all layouts would be selected")
			}
			g.Expect(got).To(Equal(test.want))
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(test.err))
		})
	}
}
