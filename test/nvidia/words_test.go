//go:build linux

package nvidia

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/node/miglog"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// mostShown, in bytes, is what the kubelet keeps of the log of a container that has ended with an error.
const mostShown = 2048

// why returns what the operator shows of a program that has ended.
func (r result) why() string { return readiness.LastLine(r.Output[max(0, len(r.Output)-mostShown):]) }

// The operator shows why a container has ended: a line of its log.
func TestTheOperatorShowsWhyAProgramHasEnded(t *testing.T) {
	t.Parallel()
	const noDriver = "nvmlInit_v2=9"
	tests := map[string]struct {
		nvml, config string
		end          func(m *machine, variables []string) result
		want         string
	}{
		"device plugin, no driver": {
			nvml: noDriver, end: endOfPlugin,
			want: "error starting plugins: error getting plugins: unable to create plugins: " +
				"failed to construct resource managers: nvml init failed: Driver Not Loaded",
		},
		"device plugin, another version": {
			config: "version: v9\n", end: endOfPlugin,
			want: "error starting plugins: unable to load config: unable to finalize config: " +
				"unable to parse config file: error parsing config file: unknown version: v9",
		},
		"GPU Feature Discovery, no driver": {
			nvml: noDriver, end: endOfFeatures,
			want: "error creating labeler: failed to initialize resource manager: Driver Not Loaded",
		},
		"MPS daemon, no driver": {
			nvml: noDriver, config: sharingByMPS(4), end: endOfDaemon,
			want: "error starting plugins: error getting daemons: failed to initialize NVML: Driver Not Loaded",
		},
		"MPS daemon, too many shares": {
			config: sharingByMPS(49), end: endOfDaemon,
			want: "error starting plugins: error getting daemons: invalid MPS configuration: " +
				"invalid device maximum allowed replicas exceeded: 49 > 48",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, h100)
			m.beside(fakegpu.NVML, test.nvml)
			variables := rendered(t, true, "")
			if test.config != "" {
				variables = append(variables, "CONFIG_FILE="+m.write("config.yaml", test.config))
			}
			got := test.end(m, variables)
			g := NewWithT(t)
			g.Expect(got.Code).To(Equal(1), got.Output)
			g.Expect(got.why()).To(Equal(test.want), got.Output)
		})
	}
}

func endOfPlugin(m *machine, variables []string) result { return m.serve(nvidias, variables...).end() }

func endOfFeatures(m *machine, variables []string) result {
	return m.run(append(variables, "DRIVER_ROOT_CTR_PATH="+m.root, "USE_NODE_FEATURE_API=false"), "gpu-feature-discovery")
}

func endOfDaemon(m *machine, variables []string) result {
	return m.run(variables, "mps-control-daemon")
}

// The operator shows why a MIG layout was not applied: a line of nvidia-mig-parted.
func TestTheOperatorShowsWhyALayoutWasNotApplied(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		nvml    string
		command []string
		layout  string
		want    string
	}{
		"not there": {
			command: []string{"assert", "--valid-config"}, layout: "missing",
			want: "Error selecting MIG config: selected mig-config not present: missing",
		},
		"no room": {
			command: []string{"-d", "apply"}, layout: "too-many",
			want: "Error creating GPU instance for '3g.40gb': ERROR_INSUFFICIENT_RESOURCES",
		},
		"the mode is refused": {
			nvml: "nvmlDeviceSetMigMode=19", command: []string{"-d", "apply", "--mode-only"}, layout: "all-1g.10gb",
			want: "Error applying MIG configuration with hooks: error setting MIG mode: error setting Mig mode: " +
				"In use by another client",
		},
		// Each change has it: it only says that the layout is another one.
		"another layout": {command: []string{"assert"}, layout: "all-1g.10gb"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			m := newMachine(t, h100)
			m.beside(fakegpu.NVML, test.nvml)
			got := m.run(nil, "nvidia-mig-parted", append(test.command, "--config-file="+m.write("layouts.yaml", layouts),
				"--selected-config="+test.layout)...)
			g.Expect(got.Code).To(Equal(1), got.Output)
			g.Expect(miglog.Cause(got.Output)).To(Equal(test.want), got.Output)
		})
	}
}
