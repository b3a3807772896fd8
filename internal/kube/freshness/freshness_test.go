package freshness_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
)

func TestStale(t *testing.T) {
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
			if got := freshness.Stale(test.cached, test.wrote); got != test.want {
				t.Errorf("stale: %v", got)
			}
		})
	}
}
