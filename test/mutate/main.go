// Command mutate checks that tests notice faults: it changes the code of packages in one place at a time, such as a
// condition, a comparison, a call that is left out or a constant that is returned, and runs the tests of the package,
// one of which has to fail.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const usage = `Usage: go run ./test/mutate [flags] PACKAGE...

Changes the code of packages in one place at a time and runs their tests. A mutant that no test notices is live; a
reviewed one of test/mutate/equivalents.yaml is left out. The command changes no file.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// choice is the flags of the command.
type choice struct {
	seed              uint64
	packages, mutants int
	operators         string
	only              *regexp.Regexp
	list              bool
	importers, lanes  int
	suites            bool
	budget            time.Duration
	most, mostOfOne   float64
	report            string
	patterns          []string
}

func parse(args []string) (*choice, error) {
	c := &choice{}
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.Uint64Var(&c.seed, "seed", 0, "seed of the choice, which repeats it; 0 is a random one")
	flags.IntVar(&c.packages, "packages", 0, "number of packages, chosen at random; 0 is all")
	flags.IntVar(&c.mutants, "mutants", 0, "number of mutants in each package, chosen at random; 0 is all")
	flags.StringVar(&c.operators, "operators", "", "kinds of changes, separated by commas, of "+
		strings.Join(operators, ", ")+"; empty is all")
	only := flags.String("only", "", "only the mutants, written FILE:LINE FUNCTION, OPERATOR: CHANGE, that this regular "+
		"expression matches")
	flags.BoolVar(&c.list, "list", false, "list the chosen mutants and run nothing")
	flags.IntVar(&c.importers, "importers", 0, "number of the given packages that import the changed one, also "+
		"through others and the nearest first, whose tests judge what its own leave alive")
	flags.IntVar(&c.lanes, "lanes", 1, "number of packages whose mutants are tried simultaneously")
	flags.BoolVar(&c.suites, "suites", false, "also run the tests that -short leaves out, such as those on an API server")
	flags.DurationVar(&c.budget, "budget", 0, "time after which no further mutant is tried; 0 is none")
	flags.Float64Var(&c.most, "most", 0, "percentage of live mutants above which the command fails")
	flags.Float64Var(&c.mostOfOne, "most-of-package", 0, "percentage of live mutants of a package above which the "+
		"command fails; 0 is none")
	flags.StringVar(&c.report, "report", "", "document in which to replace the table; packages that were judged at this "+
		"commit, with the same seed and numbers of mutants and importers, or by suites, are not judged again")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	err := flags.Parse(args)
	if err != nil {
		return nil, err
	}
	if c.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("flag -only: %w", err)
	}
	for _, name := range strings.Split(c.operators, ",") {
		if name != "" && !slices.Contains(operators, name) {
			return nil, fmt.Errorf("flag -operators: there is no operator %s", name)
		}
	}
	if c.report != "" && (c.operators != "" || *only != "") {
		return nil, errors.New("a report has mutants of all kinds: -report excludes -operators and -only")
	}
	if c.patterns = flags.Args(); len(c.patterns) == 0 {
		flags.Usage()
		return nil, errors.New("no package given")
	}
	if c.seed == 0 {
		c.seed = uint64(rand.Uint32())
	}
	return c, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	equivalents, err := readEquivalents(equivalentsFile)
	if err != nil {
		return err
	}
	w, err := list(ctx, c.patterns)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "SEED=%d\n", c.seed)
	r := &runner{choice: c, world: w, equivalents: equivalents, out: &locked{to: out}}
	if c.budget > 0 {
		r.end = time.Now().Add(c.budget)
	}
	if c.report != "" {
		if r.known, err = openRows(c); err != nil {
			return err
		}
	}
	if err = r.inPackages(ctx); c.list {
		return err
	}
	writeTable(out, r.rows)
	fmt.Fprintf(out, "\nSEED=%d repeats this choice.\n", c.seed)
	if err = errors.Join(err, r.known.writeReport()); err != nil {
		return err
	}
	if r.known != nil {
		return c.verdict(r.known.ofSeed())
	}
	return c.verdict(r.rows)
}

// verdict fails if nothing was tried, or too many mutants are live.
func (c *choice) verdict(rows []*row) error {
	all := total(rows)
	if all.tried() == 0 {
		return errors.New("no mutant was tried")
	}
	if all.percent() > c.most {
		return fmt.Errorf("%.1f %% of the mutants are live, and at most %.1f %% may be", all.percent(), c.most)
	}
	var failed []string
	for _, r := range rows {
		if c.mostOfOne > 0 && r.percent() > c.mostOfOne {
			failed = append(failed, fmt.Sprintf("%s (%.1f %%)", r.Package, r.percent()))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("more than %.1f %% of the mutants are live of %s", c.mostOfOne, strings.Join(failed, ", "))
	}
	return nil
}

func (r *runner) inPackages(ctx context.Context) error {
	lanes, running := errgroup.WithContext(ctx)
	lanes.SetLimit(max(1, r.lanes))
	for _, l := range r.shuffle(r.world.packages) {
		if running.Err() != nil {
			break
		}
		lanes.Go(func() error { return r.inPackage(running, l) })
	}
	return cmp.Or(lanes.Wait(), ctx.Err())
}

// random returns the numbers that a purpose gets of the seed: a package has the same ones whichever others are chosen.
func (c *choice) random(purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, purpose) // A hash has no errors.
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

// shuffle returns the packages in the order in which they are tried.
func (c *choice) shuffle(all []*listed) []*listed {
	if c.packages == 0 {
		return all
	}
	shuffled := slices.Clone(all)
	c.random("packages").Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}

// chooseMutants returns the mutants to try, in the order of the code.
func (c *choice) chooseMutants(pkg string, all []*mutant) []*mutant {
	var chosen []*mutant
	for _, m := range all {
		if (c.operators == "" || slices.Contains(strings.Split(c.operators, ","), m.operator)) &&
			c.only.MatchString(m.String()) {
			chosen = append(chosen, m)
		}
	}
	if c.mutants == 0 || c.mutants >= len(chosen) {
		return chosen
	}
	c.random(pkg).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:c.mutants]
	slices.SortFunc(chosen, func(a, b *mutant) int { return a.number - b.number })
	return chosen
}

// runner tries the mutants of one package after another.
type runner struct {
	*choice
	world       *world
	equivalents []equivalent
	out         io.Writer
	end         time.Time

	// lock guards what follows, which the lanes share.
	lock sync.Mutex
	rows []*row
	// known is what earlier runs found, nil without a report.
	known *knownRows
	// judged is the number of packages whose mutants were tried or listed.
	judged int
}

// locked writes one text at a time.
type locked struct {
	lock sync.Mutex
	to   io.Writer
}

func (l *locked) Write(text []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.to.Write(text)
}

// isDone reports whether enough packages were judged, or this one was by an earlier run.
func (r *runner) isDone(pkg string) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.choice.packages > 0 && r.judged >= r.choice.packages || r.known.has(pkg)
}

// begin adds a row for a package.
func (r *runner) begin(pkg string) *row {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.judged++
	result := &row{Package: pkg, Suites: r.suites}
	r.rows = append(r.rows, result)
	return result
}

func (r *runner) keep(result *row) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.known.add(result)
}

func (r *runner) over() bool { return !r.end.IsZero() && time.Now().After(r.end) }

func (r *runner) inPackage(ctx context.Context, l *listed) error {
	if r.over() || len(l.GoFiles) == 0 || r.isDone(l.name()) {
		return nil
	}
	p, mutants, err := r.generate(l)
	if err != nil {
		return err
	}
	if mutants, err = withoutEquivalents(l.name(), mutants, r.equivalents); err != nil {
		return err
	}
	mutants = r.chooseMutants(l.name(), mutants)
	if len(mutants) == 0 {
		return nil
	}
	if r.list {
		r.begin(l.name())
		for _, m := range mutants {
			fmt.Fprintln(r.out, m)
		}
		return nil
	}
	return r.try(ctx, p, mutants)
}

// generate returns all mutants of a package. The importer serves one package at a time.
func (r *runner) generate(l *listed) (*loaded, []*mutant, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	p, err := r.world.load(l)
	if err != nil {
		return nil, nil, err
	}
	mutants, err := generate(p, r.world.importer)
	return p, mutants, err
}

// importersOf returns the packages whose tests judge the mutants of a package, too: the nearest first, and of these the
// ones that import the least.
func (r *runner) importersOf(p *loaded) []*listed {
	if r.importers == 0 {
		return nil
	}
	type importer struct {
		*listed
		distance, imports int
	}
	var all []importer
	for _, l := range r.world.packages {
		if l.ImportPath == p.ImportPath || !l.hasTests() {
			continue
		}
		distances := r.world.distances(l)
		if distance, reached := distances[p.ImportPath]; reached {
			all = append(all, importer{l, distance, len(distances)})
		}
	}
	slices.SortFunc(all, func(a, b importer) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.imports, b.imports),
			cmp.Compare(a.ImportPath, b.ImportPath))
	})
	var nearest []*listed
	for _, i := range all[:min(r.importers, len(all))] {
		nearest = append(nearest, i.listed)
	}
	return nearest
}

func (r *runner) try(ctx context.Context, p *loaded, mutants []*mutant) error {
	// A short name, as is that of a trial: tests listen on sockets below, whose paths have at most 107 bytes.
	scratch, err := os.MkdirTemp("", "mu")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	j, err := newJudge(ctx, scratch, p, mutants, r.importersOf(p), r.suites)
	if err != nil {
		return err
	}
	if !j.canJudge() {
		fmt.Fprintf(r.out, "%s: not judged, as all its tests are left out with -short\n", p.name())
		return nil
	}
	result := r.begin(p.name())
	for i, m := range mutants {
		if r.over() {
			result.Untried = len(mutants) - i
			break
		}
		found, err := j.try(ctx, m)
		if err != nil {
			return err
		}
		result.count(found)
		if found == live || found == unrun {
			fmt.Fprintf(r.out, "%s: %s %s, %s\n%s", found, m.place(), m.function, m.operator, m.diff())
		}
	}
	fmt.Fprintf(r.out, "%s: %d of %d killed\n", p.name(), result.Killed+result.Stopped, result.tried())
	return r.keep(result)
}
