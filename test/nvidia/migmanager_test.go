//go:build linux

package nvidia

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	deploy      = "nvidia.com/gpu.deploy."
	layoutLabel = "nvidia.com/mig.config"
	stateLabel  = layoutLabel + ".state"
)

// change is what a MIG manager does for one layout.
type change struct {
	Layout string
	// States are those that it sets, one after the other.
	States []string
	// Paused are the labels of the operands while they are paused, Ended those at the end.
	Paused, Ended map[string]string
}

// NVIDIA's MIG manager and its stand-in change the labels of the node alike: for a layout that fails before and after
// one that succeeds, and for one that the GPUs have already.
func TestTheMIGManagersLabelAlike(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	// One operand is not the operator's, and has no label at first.
	genuine := changes(t, program{name: "nvidia-mig-manager"})
	played := changes(t, program{name: "nvidia-mig-manager", standIn: standIn})
	g.Expect(genuine[1]).To(Equal(change{
		Layout: "all-1g.10gb", States: []string{"pending", "success"},
		Paused: map[string]string{
			"device-plugin": "paused-for-mig-change", "gpu-feature-discovery": "paused-for-mig-change",
			"dcgm-exporter": "false", "dcgm": "paused-for-mig-change", "nvsm": "paused-for-mig-change",
		},
		Ended: map[string]string{
			"device-plugin": "true", "gpu-feature-discovery": "true", "dcgm-exporter": "false", "dcgm": "true",
			"nvsm": "true",
		},
	}))
	g.Expect(played).To(Equal(genuine))
}

// changes runs a MIG manager on a machine, for one layout after the other.
func changes(t *testing.T, manager program) []change {
	t.Helper()
	g := NewWithT(t)
	m := newMachine(t, h100)
	stop, err := node.ServeBus(m.dir)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(stop()).To(Succeed()) }()
	operands := map[string]string{
		"device-plugin": "true", "gpu-feature-discovery": "true", "dcgm-exporter": "false", "dcgm": "true", "nvsm": "",
	}
	labels := map[string]string{}
	for operand, value := range operands {
		if value != "" {
			labels[deploy+operand] = value
		}
	}
	of := func(labels map[string]string) map[string]string {
		found := map[string]string{}
		for operand := range operands {
			found[operand] = labels[deploy+operand]
		}
		return found
	}
	var all []change
	var n *servedNode
	before := 0
	for _, layout := range []string{"missing", "all-1g.10gb", "of-no-one", "all-1g.10gb", "all-disabled"} {
		one := change{Layout: layout}
		if n == nil {
			labels[layoutLabel] = layout
			n = newNode(labels)
			p := m.command(t.Context(), append(m.api(n), "CONFIG_FILE="+m.write("layouts.yaml", layouts),
				"HOST_ROOT_MOUNT="+m.dir, "PATH="+m.stack.Bin+":"+programs, "DEFAULT_GPU_CLIENTS_NAMESPACE=gpu-operator",
				"POD_NAMESPACE=gpu-operator"), manager)
			g.Expect(p.Start()).To(Succeed())
			defer func() {
				_, _ = p.Process.Kill(), p.Wait()
				if t.Failed() {
					t.Log(p.log.String())
				}
			}()
		} else {
			n.label(map[string]string{layoutLabel: layout}, false)
		}
		g.Eventually(func() []string {
			_, _, patches := n.read()
			var states []string
			for _, patch := range patches[before:] {
				if state := patch.changed[stateLabel]; state != "" {
					states = append(states, state)
				}
			}
			one.States = states
			return states
		}).WithTimeout(patience).Should(ContainElement(BeElementOf("success", "failed")), layout)
		now, _, patches := n.read()
		one.Ended = of(now.Labels)
		for _, patch := range patches[before:] {
			if patch.changed[deploy+"device-plugin"] == "paused-for-mig-change" {
				one.Paused = of(patch.all)
			}
		}
		before, all = len(patches), append(all, one)
	}
	return all
}
