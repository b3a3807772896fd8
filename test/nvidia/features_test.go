//go:build linux

package nvidia

import (
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// featureFile is where GPU Feature Discovery writes its labels, unless an argument names another file.
const featureFile = "/etc/kubernetes/node-feature-discovery/features.d/gfd"

// features runs GPU Feature Discovery once, and returns its labels without the prefix nvidia.com/.
func (m *machine) features(config string, variables ...string) map[string]string {
	m.t.Helper()
	g := NewWithT(m.t)
	args := []string{"--oneshot", "--no-timestamp", "--machine-type-file=" + m.dir + "/sys/dmi"}
	if config != "" {
		args = append(args, "--config-file="+m.write("config.yaml", config))
	}
	variables = slices.Concat(renderedVariables(m.t, "gpu-feature-discovery-default", "gpu-feature-discovery"), variables,
		[]string{"DRIVER_ROOT_CTR_PATH=" + m.root})
	printed := m.mustRun(variables, "gpu-feature-discovery", args...)
	g.Expect(m.dir+featureFile).To(BeAnExistingFile(), printed)
	return m.labels()
}

// labels returns the labels that GPU Feature Discovery has written, without the prefix nvidia.com/.
func (m *machine) labels() map[string]string {
	m.t.Helper()
	labels := map[string]string{}
	for line := range strings.Lines(m.read(featureFile)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		labels[strings.TrimPrefix(key, "nvidia.com/")] = value
	}
	return labels
}

// gpuLabels are those of a machine with H100 GPUs as they are.
func gpuLabels(changes map[string]string) map[string]string {
	labels := map[string]string{
		"cuda.driver.major": "580", "cuda.driver.minor": "95", "cuda.driver.rev": "05",
		"cuda.driver-version.full": driverVersion, "cuda.driver-version.major": "580", "cuda.driver-version.minor": "95",
		"cuda.driver-version.revision": "05", "cuda.runtime.major": "13", "cuda.runtime.minor": "0",
		"cuda.runtime-version.full": "13.0", "cuda.runtime-version.major": "13", "cuda.runtime-version.minor": "0",
		"gpu.compute.major": "9", "gpu.compute.minor": "0", "gpu.count": "4", "gpu.family": "hopper",
		"gpu.machine": "DGXH100", "gpu.memory": "81559", "gpu.mode": "compute", "gpu.product": "NVIDIA-H100-80GB-HBM3",
		"gpu.replicas": "1", "gpu.sharing-strategy": "none", "mig.capable": "true", "mps.capable": "false",
		"vgpu.present": "false",
	}
	maps.Copy(labels, changes)
	return labels
}

// sliceLabels are those of a MIG device, under a prefix.
func sliceLabels(prefix string, changes map[string]string) map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		"engines.copy": "1", "engines.decoder": "1", "engines.encoder": "0", "engines.jpeg": "1", "engines.ofa": "0",
		"memory": "9856", "multiprocessors": "16", "slices.ci": "1", "slices.gi": "1", "count": "28", "replicas": "1",
		"sharing-strategy": "none", "product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
	} {
		labels[prefix+name] = value
	}
	maps.Copy(labels, changes)
	return labels
}

func TestGPUFeatureDiscovery(t *testing.T) {
	t.Parallel()
	merge := func(all ...map[string]string) map[string]string {
		merged := map[string]string{}
		for _, one := range all {
			maps.Copy(merged, one)
		}
		return merged
	}
	mixed := map[string]string{"mig.strategy": "mixed"}
	tests := map[string]struct {
		model                    model
		layout, strategy, config string
		want                     map[string]string
	}{
		"whole GPUs":         {model: h100, strategy: "none", want: gpuLabels(nil)},
		"single without MIG": {model: h100, strategy: "single", want: gpuLabels(map[string]string{"mig.strategy": "single"})},
		"time-slicing": {
			model: h100, config: sharing("nvidia.com/gpu", 4, ""), want: gpuLabels(map[string]string{
				"gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing",
			}),
		},
		"time-slicing under a new name": {
			model: h100, config: sharing("nvidia.com/gpu", 4, "    renameByDefault: true\n"),
			want: gpuLabels(map[string]string{"gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}),
		},
		"MPS": {
			model: h100, config: sharingByMPS(4),
			want: gpuLabels(map[string]string{
				"gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "mps",
				"mps.capable": "true",
			}),
		},
		"MIG single": {
			model: h100, layout: "all-1g.10gb", strategy: "single",
			want: gpuLabels(sliceLabels("gpu.", map[string]string{"mig.strategy": "single"})),
		},
		"MIG single, layouts that differ": {
			model: h100, layout: "all-balanced", strategy: "single", want: gpuLabels(map[string]string{
				"mig.strategy": "single", "gpu.count": "0", "gpu.memory": "0", "gpu.replicas": "0", "gpu.sharing-strategy": "",
				"gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
			}),
		},
		"MIG mixed": {
			model: h100, layout: "all-1g.10gb", strategy: "mixed",
			want: merge(gpuLabels(map[string]string{"gpu.replicas": "0"}), mixed, sliceLabels("mig-1g.10gb.", nil)),
		},
		"MIG mixed, one GPU, shared": {
			model: h100, layout: "first-only", strategy: "mixed", config: sharing("nvidia.com/mig-1g.10gb", 2, ""),
			want: merge(gpuLabels(nil), mixed, sliceLabels("mig-1g.10gb.", map[string]string{
				"mig-1g.10gb.count": "7", "mig-1g.10gb.replicas": "2", "mig-1g.10gb.sharing-strategy": "time-slicing",
				"mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED",
			})),
		},
		"T4": {
			model: t4, strategy: "single", want: gpuLabels(map[string]string{
				"gpu.compute.major": "7", "gpu.compute.minor": "5", "gpu.count": "1", "gpu.family": "turing",
				"gpu.memory": "15360", "gpu.product": "Tesla-T4", "mig.capable": "false", "mig.strategy": "single",
			}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			m := newMachine(t, test.model)
			if test.layout != "" {
				m.mustPartition(test.layout)
			}
			var variables []string
			if test.strategy != "" {
				variables = []string{"MIG_STRATEGY=" + test.strategy}
			}
			g.Expect(m.features(test.config, variables...)).To(Equal(test.want))
			m.knowsAll()
		})
	}
}
