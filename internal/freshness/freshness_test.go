package freshness_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/freshness"
)

func TestTracker(t *testing.T) {
	tests := map[string]struct {
		wrote, cached string
		want          bool
	}{
		"nothing was written":                          {cached: "5"},
		"the cache is behind":                          {wrote: "10", cached: "9", want: true},
		"the cache shows the write":                    {wrote: "10", cached: "10"},
		"the cache is ahead":                           {wrote: "10", cached: "11"},
		"versions are numbers, not texts":              {wrote: "10", cached: "100"},
		"a version that cannot be compared is current": {wrote: "10", cached: "x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := freshness.NewTracker()
			if test.wrote != "" {
				tracker.Wrote("a", test.wrote)
			}
			if got := tracker.Stale("a", test.cached); got != test.want {
				t.Errorf("stale: %v", got)
			}
			if tracker.Stale("b", "1") {
				t.Error("another object is stale")
			}
		})
	}
}

func TestTrackerDropsWhatTheCacheHasShown(t *testing.T) {
	tracker := freshness.NewTracker()
	tracker.Wrote("a", "10")
	if tracker.Stale("a", "10") || tracker.Stale("a", "9") {
		t.Error("stale after the cache had caught up")
	}
	tracker.Wrote("a", "20")
	tracker.Forget("a")
	if tracker.Stale("a", "1") {
		t.Error("stale after it was forgotten")
	}
}
