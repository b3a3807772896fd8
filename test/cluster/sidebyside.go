package cluster

import (
	"flag"
	"fmt"
	"strconv"
)

// storiesAtOnce is how many tests with a cluster each run at once: they mostly wait.
const storiesAtOnce = 5

// SideBySide has the tests of a package that call t.Parallel run several at once, whatever the number of cores, unless
// -parallel says how many. It is to be called by TestMain, before the tests run. The flag itself is not for all packages:
// suites of Ginkgo refuse it.
func SideBySide() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	if err := flag.Set("test.parallel", strconv.Itoa(storiesAtOnce)); err != nil {
		return fmt.Errorf("run tests side by side: %w", err)
	}
	return nil
}
