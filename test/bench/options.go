package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// defaultNodes are the sizes that are measured by default.
	defaultNodes = "100,1000"
	// defaultTimeout is several times the slowest wait at 1,000 nodes on two cores.
	defaultTimeout = 15 * time.Minute
	// defaultDriverSeconds is a short time for a real driver.
	defaultDriverSeconds = 60
	// Alternating runs are repeated repeatsOfFew times with up to fewNodes nodes, and repeatsOfMany times above.
	fewNodes, repeatsOfFew, repeatsOfMany = 100, 5, 3
)

// options are the command line flags.
type options struct {
	// nodes are the sizes of the clusters, which are measured sequentially.
	nodes []int
	// only are the phases to run; install runs first if another needs it.
	only []string
	// stages is how pods are simulated.
	stages stages
	// plane is how the control plane runs.
	plane controlPlane
	// policy is the file with this operator's policy.
	policy string
	// other is another operator to compare with, if any.
	other otherOperator
	// repeat is how often alternating runs are repeated; 0: see repeatsAt.
	repeat int
	// strict makes a missed goal an error.
	strict bool
	// timeout is the timeout of each wait.
	timeout time.Duration
	// docs is the file to write the figures to; empty: none.
	docs string
	// soak is the share of the events of the phase soak to make; 0: all.
	soak float64
	// driverTakes is how long a driver takes to be ready in the phase latency, and driver in the present one; 0: as in
	// the simulator's default.
	driverTakes, driver time.Duration
	// pace scales how long the simulated pods take; 0: not at all.
	pace float64
	// cache is the folder that stores them between runs.
	cache string
}

// parseOptions parses the arguments. It has printed the cause when it fails.
func parseOptions(args []string, errOut io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	sizes := flags.String("nodes", defaultNodes, "comma-separated numbers of GPU nodes")
	only := flags.String("only", "",
		"comma-separated phases to run; by default all but "+strings.Join(onRequest, " and ")+": "+
			strings.Join(phaseNames(), ","))
	played := flags.String("stages", "realistic",
		"how pods are simulated: realistic, or, for the phase "+comparison+" alone, fast by kwok's own fast stages, or "+
			"delayed by kwok after 0.2 to 7 s")
	plane := flags.String("control-plane", "tuned", "how the control plane runs: tuned to use less "+
		"CPU, default, or minimal, without the DaemonSet controller and only for the phases "+
		strings.Join(placedPhases, ", "))
	flags.IntVar(&o.repeat, "repeat", 0,
		fmt.Sprintf("how often the runs of the phase %s are repeated; 0: %d times up to %d nodes, otherwise %d times",
			comparison, repeatsOfFew, fewNodes, repeatsOfMany))
	flags.StringVar(&o.policy, "policy", samplePolicy, "file with the policy of this operator in the phase "+comparison)
	o.other.register(flags)
	flags.BoolVar(&o.strict, "strict", false, "fail if a goal is missed")
	flags.DurationVar(&o.timeout, "timeout", defaultTimeout, "timeout of each wait")
	driverSeconds := flags.Int("driver-seconds", defaultDriverSeconds,
		"how many seconds a driver takes to be ready in the phase "+latency)
	flags.Float64Var(&o.soak, "soak", 0, "share of the events of the phase "+soaking+
		" to make, such as 0.05; its figures are only printed then; 0: all events")
	flags.StringVar(&o.docs, "docs", "docs/benchmarks.md", "file in which to replace the figures; empty: none")
	flags.StringVar(&o.cache, "cache", ".cache/bench", "folder that stores figures between runs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.driverTakes = time.Duration(*driverSeconds) * time.Second
	err := o.readSetting(*played, *plane)
	if err == nil {
		err = o.read(*sizes, *only, flags.Args())
	}
	if err != nil {
		fmt.Fprintln(errOut, "bench:", err)
	}
	return o, err
}

// readSetting parses what figures are kept apart by.
func (o *options) readSetting(played, plane string) (err error) {
	if o.stages, err = parseStages(played); err != nil {
		return err
	}
	if o.plane, err = parseControlPlane(plane); err != nil {
		return err
	}
	return o.other.check()
}

// setting is what the figures are kept apart by.
func (o *options) setting() setting {
	how := setting{Stages: o.stages, ControlPlane: o.plane, Other: o.other.version}
	if o.policy != samplePolicy {
		how.Policy = o.policy
	}
	return how
}

func (o *options) read(sizes, only string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unknown argument %q: only flags are supported, such as -nodes=100", rest[0])
	}
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil || n < fewestNodes {
			return fmt.Errorf("-nodes=%s: want numbers from %d on, such as 100,1000", sizes, fewestNodes)
		}
		o.nodes = append(o.nodes, n)
	}
	if o.timeout <= 0 {
		return errors.New("-timeout: want a duration above 0, such as 15m")
	}
	if o.repeat < 0 {
		return errors.New("-repeat: want a number from 1 on, or 0 for the default")
	}
	if o.driverTakes <= 0 {
		return errors.New("-driver-seconds: want a number from 1 on")
	}
	if o.soak < 0 || o.soak > 1 {
		return errors.New("-soak: want a number up to 1, or 0 for all events")
	}
	return o.readPhases(only)
}

// readPhases returns the phases to run. Stages of kwok support only one, as nothing can break or be delayed with
// them, and another operator or another policy is only measured by that one.
func (o *options) readPhases(only string) error {
	known := phaseNames()
	switch {
	case o.plane == minimal && (o.stages.byKwok() || o.other.program != "" || o.policy != samplePolicy):
		return errors.New("-control-plane=minimal: only the sample policy is measured there, with the realistic stages and " +
			"without another operator")
	case o.plane == minimal:
		known = placedPhases
		o.only = slices.DeleteFunc(slices.Clone(known), isOnRequest)
	case o.stages.byKwok() || o.other.program != "" || o.policy != samplePolicy:
		known = []string{comparison}
		o.only = known
	default:
		o.only = slices.DeleteFunc(phaseNames(), isOnRequest)
	}
	if only == "" {
		return nil
	}
	o.only = strings.Split(only, ",")
	for _, name := range o.only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("-only=%s: there is no phase %q: want some of %s", only, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// repeatsAt returns how often alternating runs are repeated for a size.
func (o *options) repeatsAt(nodes int) int {
	switch {
	case o.repeat > 0:
		return o.repeat
	case nodes <= fewNodes:
		return repeatsOfFew
	default:
		return repeatsOfMany
	}
}

// timing returns how long the simulated pods take.
func (o *options) timing() simulator.Timing {
	timing := simulator.DefaultTiming()
	timing.Relist = kubeletRelist
	if o.driver > 0 {
		timing.Ready[driverApp] = o.driver
	}
	if o.pace > 0 {
		timing = timing.Scale(o.pace)
	}
	return timing
}
