package needs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// allowVariable lists what may be missing even in CI, separated by commas, such as cgroup,root.
const allowVariable = "ALLOW_MISSING"

// What a test may need of its machine.
type What string

const (
	// Address is an address but loopback.
	Address What = "address"
	// Cgroup is what a real node needs: cgroup v1 and root.
	Cgroup What = "cgroup"
	// Chromium is a browser with the DevTools protocol.
	Chromium What = "chromium"
	// Compiler is a C compiler.
	Compiler What = "compiler"
	// History is the history of the repository.
	History What = "history"
	// Root is the right to change the root and to mount.
	Root What = "root"
	// Xz is the program of that name.
	Xz What = "xz"
)

// Unmet skips a test for the reason; with CI=true it fails, unless ALLOW_MISSING lists what is missing.
func Unmet(tb testing.TB, what What, reason any) {
	tb.Helper()
	if err := Tolerate(what, reason); err != nil {
		tb.Fatal(err)
	}
	tb.Skip(reason)
}

// Tolerate is Unmet for a TestMain: an error if the tests may not be skipped.
func Tolerate(what What, reason any) error {
	if os.Getenv("CI") == "" || slices.Contains(strings.Split(os.Getenv(allowVariable), ","), string(what)) {
		return nil
	}
	return fmt.Errorf("CI lacks %s; %s=%s would skip the test: %v", what, allowVariable, what, reason)
}
