// Command times prints how long the tests of each package took, and fails if one exceeded its bound. It reads one or
// more files that gotestsum writes with --jsonfile.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// factor is how many times the bound, which is for an idle machine, a busy machine may take.
const factor = 3

// notable is the fraction of the common bound from which a package is listed.
const notable = 2

func main() {
	path := flag.String("bounds", "test/times.txt", "file with the bound of each package")
	flag.Parse()
	if err := run(*path, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		os.Exit(1)
	}
}

func run(boundsFile string, results []string, out io.Writer) error {
	text, err := os.ReadFile(boundsFile)
	if err != nil {
		return fmt.Errorf("reading bounds: %w", err)
	}
	limits, err := parseBounds(string(text))
	if err != nil {
		return fmt.Errorf("reading bounds from %s: %w", boundsFile, err)
	}
	took := map[string]time.Duration{}
	for _, path := range results {
		if err := readFile(path, took); err != nil {
			return fmt.Errorf("reading results from %s: %w", path, err)
		}
	}
	if len(took) == 0 {
		return errors.New("no package has a result: give files that gotestsum has written with --jsonfile")
	}
	return judge(took, limits, out)
}

// bounds are those of named packages, and rest applies to all others.
type bounds struct {
	rest time.Duration
	of   map[string]time.Duration
}

// parseBounds parses lines of a package path and seconds. The path * is the bound of all other packages. Lines that
// begin with # are comments.
func parseBounds(text string) (bounds, error) {
	b := bounds{of: map[string]time.Duration{}}
	for number, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return b, fmt.Errorf("line %d: want a package and seconds, not %q", number+1, line)
		}
		seconds, err := strconv.Atoi(fields[1])
		if err != nil || seconds <= 0 {
			return b, fmt.Errorf("line %d: %q is not a number of seconds", number+1, fields[1])
		}
		if b.of[fields[0]] != 0 {
			return b, fmt.Errorf("line %d: %s already has a bound", number+1, fields[0])
		}
		b.of[fields[0]] = time.Duration(seconds) * time.Second
	}
	if b.rest = b.of["*"]; b.rest == 0 {
		return b, errors.New("no bound for all other packages: add a line with *")
	}
	delete(b.of, "*")
	return b, nil
}

func readFile(path string, took map[string]time.Duration) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return read(file, took)
}

// read adds the time of each package from the events of go test -json; the times of several runs add up.
func read(events io.Reader, took map[string]time.Duration) error {
	decoder := json.NewDecoder(bufio.NewReader(events))
	for {
		var event struct {
			Action, Package, Test string
			Elapsed               float64
		}
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if event.Test == "" && (event.Action == "pass" || event.Action == "fail") {
			took[event.Package] += time.Duration(event.Elapsed * float64(time.Second))
		}
	}
}

// judge prints the packages, the slowest first, and returns an error with those that took too long. Packages far
// below the common bound are only counted.
func judge(took map[string]time.Duration, limits bounds, out io.Writer) error {
	packages := slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		if c := int(took[b] - took[a]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "took\tbound\t  package")
	var slow []string
	var sum time.Duration
	quick := 0
	for _, name := range packages {
		sum += took[name]
		limit, known := limits.of[name]
		if !known {
			limit = limits.rest
		}
		if !known && took[name] < limit/notable {
			quick++
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t  %s\n", took[name].Round(100*time.Millisecond), limit, name)
		if took[name] > factor*limit {
			slow = append(slow, name)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	fmt.Fprintf(out, "%d more packages took less than %s each; all packages: %s\n", quick, limits.rest/notable,
		sum.Round(100*time.Millisecond))
	if len(slow) > 0 {
		return fmt.Errorf("more than %d times the bound: %s: make them faster, or raise the bound", factor,
			strings.Join(slow, ", "))
	}
	return nil
}
