package simulator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

// smiFailure is the exit code of nvidia-smi without its kernel module.
const smiFailure = 9

// syncDriver updates the machine's driver to the driver's pods: NVIDIA's container is simulated, but the files that
// gpu-node reads exist.
func (n *node) syncDriver() error {
	if n.host == nil {
		return nil
	}
	var failures []error
	for _, p := range n.pods {
		if p.app != appDriver {
			continue
		}
		switch {
		case p.ending() && p.provided != "":
			p.provided = ""
			failures = append(failures, n.host.StopDriver())
		case p.drives() && p.provided != p.instance():
			p.provided, n.smi = p.instance(), 0
			failures = append(failures, n.host.InstallDriver(p.uid))
		}
	}
	exitCode := 0
	if n.driverFails() {
		exitCode = smiFailure
	}
	if exitCode != n.smi {
		n.smi = exitCode
		failures = append(failures, n.host.SetSMI(exitCode))
	}
	return errors.Join(failures...)
}

// driverFails reports whether nvidia-smi fails on the node.
func (n *node) driverFails() bool {
	return n.sim.faults.of(n.name, []string{driverOperand}) == DriverFails
}

// hasPausedPods reports whether pods of operands that k8s-driver-manager pauses are on the node: it only replaces a
// loaded driver once there are none.
func (n *node) hasPausedPods() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(n.pods)), func(p *pod) bool {
		return slices.ContainsFunc(p.operands, func(operand string) bool { return slices.Contains(pausedOperands, operand) })
	})
}

// pauses reports whether k8s-driver-manager is running on the node.
func (n *node) pauses() bool {
	for _, p := range n.pods {
		if p.ending() {
			continue
		}
		for _, c := range p.inits {
			if c.program.manager && c.phase == running && n.findsModules() {
				return true
			}
		}
	}
	return false
}

// writePause pauses or resumes the operands by their deploy labels.
func (n *node) writePause(ctx context.Context) error {
	if n.host == nil && !n.sim.modules {
		return nil
	}
	from, to := deployPaused, deployTrue
	if n.pauses() {
		from, to = deployTrue, deployPaused
	}
	changes := map[string]string{}
	for key, value := range n.object.Labels {
		if operand, ok := strings.CutPrefix(key, deployPrefix); ok && value == from && slices.Contains(
			pausedOperands, operand,
		) {
			changes[key] = to
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return n.patchMetadata(ctx, map[string]any{"labels": changes})
}
