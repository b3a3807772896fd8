package simulator

import (
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// verb is what a container does, as far as it matters for the simulation.
type verb string

const (
	// verbOther takes some time and depends on nothing.
	verbOther    verb = ""
	verbWait     verb = "wait"
	verbValidate verb = "validate"
	verbCopy     verb = "copy"
	verbExec     verb = "exec"
	verbHold     verb = "hold"
	verbDiscover verb = "discover"
	// verbCompute is the program that runs a kernel on each GPU of its container; it is not a command of gpu-node.
	verbCompute verb = "compute"
)

// program is a container's parsed command line.
type program struct {
	verb verb
	// markers are waited for (wait, exec) or written (validate).
	markers []string
	// afterDriver: it waits for the driver container of its own pod, regardless of the markers (exec).
	afterDriver bool
	// manager: it is NVIDIA's k8s-driver-manager, which prepares the node for a new driver.
	manager bool
	// period is how often it checks what it waits for; 0: it notices a change immediately.
	period time.Duration
	// polls: its first check fails always, as it begins what it then waits for.
	polls bool
}

// Names of the binaries whose command lines are parsed.
const (
	onNodeProgram  = "gpu-node"
	managerProgram = "driver-manager"
	computeProgram = "gpu-node-cuda"
)

// readProgram recognises the on-node program by its binary's name, in any directory.
func readProgram(container corev1.Container) program {
	argv := slices.Concat(container.Command, container.Args)
	if len(argv) > 0 {
		switch path.Base(argv[0]) {
		case managerProgram:
			return program{manager: true}
		case computeProgram:
			return program{verb: verbCompute}
		}
	}
	if isConfigManager(container) {
		return program{} // It is played, see configured.
	}
	if len(argv) < 2 || path.Base(argv[0]) != onNodeProgram {
		return readShell(argv, container.Env)
	}
	p, args := program{verb: verb(argv[1])}, argv[2:]
	// What follows "--" is the command line of another program.
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	p.readFlags(args)
	return p
}

func (p *program) readFlags(args []string) {
	switch p.verb {
	case verbWait:
		p.markers = flagValues(args, "--for")
	case verbExec:
		p.markers = flagValues(args, "--marker")
		p.afterDriver = slices.Contains(args, "--driver-container")
		if len(p.markers) == 0 && !p.afterDriver {
			p.markers = []string{markerDriver}
		}
	case verbValidate:
		if len(args) > 0 {
			p.markers = args[:1]
		}
	}
}

// flagValues collects the values of a flag that is given once or more, with "=" or as the next
// argument, each a list with commas.
func flagValues(args []string, name string) []string {
	var values []string
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, name+"=")
		if arg == name && i+1 < len(args) {
			value, ok = args[i+1], true
		}
		if ok {
			values = append(values, strings.Split(value, ",")...)
		}
	}
	return values
}

// blocked reports whether the program has to wait for something on its node.
func (p program) blocked(n *node) bool {
	if p.manager {
		return n.host != nil && n.host.ModulesLoaded() && n.hasPausedPods()
	}
	if p.afterDriver && n.driverInstance() == "" {
		return true
	}
	switch p.verb {
	case verbWait, verbExec:
		return slices.ContainsFunc(p.markers, func(marker string) bool { return !n.proven(marker) })
	case verbValidate:
		return slices.ContainsFunc(p.markers, func(marker string) bool { return !n.provable(marker) })
	default:
		return false
	}
}
