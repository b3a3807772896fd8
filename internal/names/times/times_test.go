package times_test

import (
	"testing"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

func TestTimes(t *testing.T) {
	never, early, late := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	tests := map[string]struct{ a, b, earlier, later time.Time }{
		"early and late":  {early, late, early, late},
		"late and early":  {late, early, early, late},
		"never and early": {never, early, early, early},
		"early and never": {early, never, early, early},
		"never":           {never, never, never, never},
		"the same":        {late, late, late, late},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := times.Earlier(test.a, test.b); !got.Equal(test.earlier) {
				t.Errorf("the earlier is %v, want %v", got, test.earlier)
			}
			if got := times.Later(test.a, test.b); !got.Equal(test.later) {
				t.Errorf("the later is %v, want %v", got, test.later)
			}
		})
	}
}
