package cluster

import (
	"os"
	"testing"
)

// FullCampaigns reports whether tests run complete campaigns (TEST_FULL=1, as make test-full sets it) instead of a
// fixed sample.
func FullCampaigns() bool { return os.Getenv("TEST_FULL") != "" }

// Sampled reports whether only a sample of the tests runs (TEST_SAMPLE=1, as make test sets it, to end in 20 minutes).
func Sampled() bool { return os.Getenv("TEST_SAMPLE") != "" }

// SkipInSample skips a test that make test leaves out: another one covers the main case of what it is about. make ci
// and make test-full run it.
func SkipInSample(tb testing.TB) {
	tb.Helper()
	if Sampled() {
		tb.Skip("make test runs a sample; make ci, make test-full and go test run this test, too")
	}
}
