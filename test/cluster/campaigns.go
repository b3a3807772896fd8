package cluster

import (
	"os"
	"strconv"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// FullCampaigns reports whether tests run complete campaigns (TEST_FULL=1, as make test-full sets it) instead of a
// fixed sample.
func FullCampaigns() bool { return os.Getenv("TEST_FULL") != "" }

// Sampled reports whether only a sample of the tests runs (TEST_SAMPLE=1, as make test sets it, to end in 20 minutes).
func Sampled() bool { return os.Getenv("TEST_SAMPLE") != "" }

// shareVariable is the environment variable with a number n: one in n of the tests that make test leaves out run. make
// ci sets it, to end in an hour; without it they all run.
const shareVariable = "TEST_SHARE"

// Shared reports whether only a share of the tests that make test leaves out runs.
func Shared() bool { return os.Getenv(shareVariable) != "" && os.Getenv(shareVariable) != "1" }

// SkipInSample skips a test that make test leaves out: another one covers the main case of what it is about. make ci
// runs a share of these tests, by chance; make test-full and go test run all.
func SkipInSample(tb testing.TB) {
	tb.Helper()
	if Sampled() {
		tb.Skip("make test runs a sample; make ci at times, make test-full and go test run this test, too")
	}
	share := os.Getenv(shareVariable)
	if share == "" {
		return
	}
	of, err := strconv.ParseUint(share, 10, 64)
	if err != nil || of == 0 {
		tb.Fatalf("%s=%s is no number of at least 1", shareVariable, share)
	}
	if !chance.Turn(tb, tb.Name(), of) {
		tb.Skipf("make ci runs one in %d of such tests, and this one with another seed; go test runs it, too", of)
	}
}
