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
)

const (
	// defaultNodes are the sizes that are measured unless others are asked for.
	defaultNodes = "100,1000"
	// defaultTimeout is for the slowest wait at 1,000 nodes on two cores, several times over.
	defaultTimeout = 15 * time.Minute
	// Up to fewNodes nodes runs that alternate are repeated repeatsOfFew times, above that repeatsOfMany times.
	fewNodes, repeatsOfFew, repeatsOfMany = 100, 5, 3
)

// options are what the user sets.
type options struct {
	// nodes are the sizes of the clusters, one after the other.
	nodes []int
	// only are the phases that are run; install comes first where another needs it.
	only []string
	// stages is how pods are played.
	stages stages
	// repeat is how often runs that alternate are repeated; 0: as repeatsAt has it.
	repeat int
	// strict makes a missed goal an error.
	strict bool
	// timeout is for each wait.
	timeout time.Duration
	// docs is the file that gets the figures; empty: none.
	docs string
	// cache is the folder that keeps them between runs.
	cache string
}

// parseOptions reads the arguments. It has told what is wrong with them when it fails.
func parseOptions(args []string, told io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(told)
	sizes := flags.String("nodes", defaultNodes, "how many GPU nodes, several separated by commas")
	only := flags.String("only", "", "the phases to run, separated by commas; all but "+comparison+" unless said: "+strings.Join(phaseNames(), ","))
	played := flags.String("stages", "realistic", "how pods are played: realistic, or fast by kwok's own fast stages, for the phase "+comparison+" alone")
	flags.IntVar(&o.repeat, "repeat", 0, fmt.Sprintf("how often the runs of the phase %s are repeated; 0: %d times up to %d nodes, else %d times",
		comparison, repeatsOfFew, fewNodes, repeatsOfMany))
	flags.BoolVar(&o.strict, "strict", false, "fail if a goal is missed")
	flags.DurationVar(&o.timeout, "timeout", defaultTimeout, "for each thing that is waited for")
	flags.StringVar(&o.docs, "docs", "docs/benchmarks.md", "the file whose figures are replaced; empty: none")
	flags.StringVar(&o.cache, "cache", ".cache/bench", "the folder that keeps figures between runs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.read(*sizes, *played, *only, flags.Args())
	if err != nil {
		fmt.Fprintln(told, "bench:", err)
	}
	return o, err
}

func (o *options) read(sizes, played, only string, rest []string) (err error) {
	if len(rest) > 0 {
		return fmt.Errorf("unknown argument %q: all are flags, such as -nodes=100", rest[0])
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
	if o.stages, err = parseStages(played); err != nil {
		return err
	}
	return o.readPhases(only)
}

// readPhases: with the fast stages there is nothing that the other phases could break or delay.
func (o *options) readPhases(only string) error {
	known := phaseNames()
	if o.stages == fast {
		known = []string{comparison}
		o.only = known
	} else {
		o.only = slices.DeleteFunc(phaseNames(), func(name string) bool { return name == comparison })
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

// repeatsAt is how often runs that alternate are repeated at a size.
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
