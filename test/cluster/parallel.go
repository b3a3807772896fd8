package cluster

import (
	"flag"
	"fmt"
	"os"
	"strconv"
)

// parallelTests is how many tests, each with its own cluster, run in parallel: they mostly wait.
const parallelTests = 5

// Tests are those of a package, such as a *testing.M. Run returns their exit code.
type Tests interface{ Run() int }

// Main is the end of a TestMain: it sets the default of the flag -parallel, runs the tests, and exits.
func Main(tests Tests) {
	if err := SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(tests.Run())
}

// SetParallel sets the default of the flag -parallel, independently of the number of cores. TestMain calls it before
// the tests run. It is not set for all packages on the command line, as Ginkgo suites refuse the flag.
func SetParallel() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	if err := flag.Set("test.parallel", strconv.Itoa(parallelTests)); err != nil {
		return fmt.Errorf("set -parallel: %w", err)
	}
	return nil
}
