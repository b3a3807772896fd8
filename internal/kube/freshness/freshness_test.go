package freshness_test

import (
	"testing"
	"time"

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

// An object is left alone while the cache does not show the last write to it, whose version is kept as long, and during
// a back-off.
func TestWritesHoldAnObject(t *testing.T) {
	tests := map[string]struct {
		cached  string
		backoff time.Duration
		held    bool
		recheck time.Duration
		forgets bool
	}{
		"the cache is behind":               {cached: "9", held: true, recheck: time.Second},
		"the cache is behind in a back-off": {cached: "9", backoff: time.Minute, held: true, recheck: time.Second},
		"the cache shows the write":         {cached: "10", forgets: true},
		"a back-off goes on": {
			cached: "10", backoff: time.Minute, held: true, recheck: time.Minute, forgets: true,
		},
		"a back-off is over": {cached: "10", backoff: -time.Minute, forgets: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes := freshness.Writes{"a": "10", "b": "10"}
			held, recheck := writes.Held("a", test.cached, time.Second, test.backoff)
			if held != test.held || recheck != test.recheck {
				t.Errorf("held: %v, to look again after %s", held, recheck)
			}
			writes.Forget("a", test.cached)
			if _, known := writes["a"]; known == test.forgets || writes["b"] != "10" {
				t.Errorf("the writes that are known: %v", writes)
			}
		})
	}
}
