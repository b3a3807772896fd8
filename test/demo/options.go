package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	defaultNodes   = 8
	defaultTimeout = 5 * time.Minute
)

// modes are the types of faults; the first is the default.
var modes = []simulator.Mode{simulator.CrashLoop, simulator.ImagePull, simulator.NeverReady}

// options are set by variables of make or of the environment.
type options struct {
	// nodes is the number of simulated GPU nodes.
	nodes int
	// exit ends the demo with the verdict instead of leaving the cluster running.
	exit bool
	// timeout is how long the applied policy may take to become ready.
	timeout time.Duration
	// faults are injected before the policy is applied.
	faults []fault
	// real adds a node with a kubelet to the simulated ones.
	real bool
	// tour shows scenes on a cluster of its own.
	tour bool
	// withoutReal is why there is none although the user requested it.
	withoutReal error
}

// total returns the number of GPU nodes, including the real one.
func (o options) total() int {
	if o.real {
		return o.nodes + 1
	}
	return o.nodes
}

// fault is an operand that fails on a node.
type fault struct {
	operand, node string
	mode          simulator.Mode
}

// breakable returns the operands that have pods, as only a pod can fail.
func breakable(catalogue operand.Catalogue) []string {
	var names []string
	for _, o := range catalogue {
		if len(o.Workloads) > 0 {
			names = append(names, string(o.Name))
		}
	}
	slices.Sort(names)
	return names
}

// parseOptions reads the variables NODES, EXIT, TIMEOUT, REAL, BREAK and TOUR; an empty one is unset.
func parseOptions(getenv func(string) string, operands []string) (options, error) {
	tour, err := parseSwitch(getenv, "TOUR", "want 1 for a tour, 0 for none")
	if err != nil {
		return options{}, err
	}
	if tour {
		return tourOptions(getenv)
	}
	return ownOptions(getenv, operands)
}

// ownOptions returns the options of a demo without a tour.
func ownOptions(getenv func(string) string, operands []string) (options, error) {
	opts := options{nodes: defaultNodes, timeout: defaultTimeout}
	var err error
	if text := getenv("NODES"); text != "" {
		if opts.nodes, err = strconv.Atoi(text); err != nil || opts.nodes < 1 {
			return options{}, fmt.Errorf("NODES=%s: want a positive number, such as NODES=8", text)
		}
	}
	if opts.exit, err = parseSwitch(
		getenv, "EXIT", "want 1 to exit once the policy is ready, 0 to keep running",
	); err != nil {
		return options{}, err
	}
	if text := getenv("TIMEOUT"); text != "" {
		if opts.timeout, err = time.ParseDuration(text); err != nil || opts.timeout <= 0 {
			return options{}, fmt.Errorf("TIMEOUT=%s: want a duration, such as TIMEOUT=90s or TIMEOUT=5m", text)
		}
	}
	if opts.real, err = parseSwitch(getenv, "REAL", "want 1 to add a real node with a kubelet, 0 for none"); err != nil {
		return options{}, err
	}
	if text := getenv("BREAK"); text != "" {
		if opts.faults, err = parseFaults(text, opts.nodes, operands); err != nil {
			return options{}, err
		}
	}
	return opts, nil
}

// tourOptions returns the options of the tour, which has its own.
func tourOptions(getenv func(string) string) (options, error) {
	for _, name := range []string{"NODES", "EXIT", "TIMEOUT", "REAL", "BREAK"} {
		if text := getenv(name); text != "" {
			return options{}, fmt.Errorf("%s=%s: leave it out with TOUR=1", name, text)
		}
	}
	return options{nodes: tourNodes, exit: true, tour: true, faults: []fault{tourFault}}, nil
}

// parseSwitch parses a variable that is 0 or 1; an empty one is 0.
func parseSwitch(getenv func(string) string, name, want string) (bool, error) {
	text := getenv(name)
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s=%s: %s", name, text, want)
	}
	return on, nil
}

// parseFaults parses a comma-separated list of OPERAND:NODE or OPERAND:NODE:MODE.
func parseFaults(text string, nodes int, operands []string) ([]fault, error) {
	var faults []fault
	for _, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		parts := strings.Split(item, ":")
		if len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Errorf("BREAK=%s: %q is not OPERAND:NODE or OPERAND:NODE:MODE, such as driver:gpu-00003", text, item)
		}
		f := fault{operand: parts[0], node: parts[1], mode: modes[0]}
		if len(parts) == 3 {
			f.mode = simulator.Mode(parts[2])
		}
		if !slices.Contains(operands, f.operand) {
			return nil, fmt.Errorf("BREAK=%s: unknown operand %q, want one of %s", text, f.operand, strings.Join(operands, ", "))
		}
		if !isNode(f.node, nodes) {
			return nil, fmt.Errorf("BREAK=%s: unknown node %q, want one of %s to %s", text, f.node, nodeName(0),
				nodeName(nodes-1))
		}
		if !slices.Contains(modes, f.mode) {
			return nil, fmt.Errorf("BREAK=%s: unknown mode %q, want one of %s", text, f.mode, joined(modes))
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// nodeName returns the simulator's name for a node.
func nodeName(serial int) string { return fmt.Sprintf("gpu-%05d", serial) }

func isNode(name string, nodes int) bool {
	serial, err := strconv.Atoi(strings.TrimPrefix(name, "gpu-"))
	return err == nil && serial >= 0 && serial < nodes && name == nodeName(serial)
}

func joined(modes []simulator.Mode) string {
	var names []string
	for _, mode := range modes {
		names = append(names, string(mode))
	}
	return strings.Join(names, ", ")
}
