package times_test

import (
	"testing"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

func TestBackoff(t *testing.T) {
	backoff, now, first, last := times.Backoff{}, time.Unix(1, 0), 2*time.Second, 7*time.Second
	for failures, want := range []time.Duration{first, 2 * first, last, last} {
		if backoff = backoff.Next(now, first, last); backoff != (times.Backoff{Until: now.Add(want), Wait: want}) {
			t.Errorf("the back-off is %v, want %s", backoff, want)
		}
		for range 100 {
			if got := times.Jittered(failures, first, last); got < want/2 || got > want {
				t.Errorf("the jittered pause is %s, want half of %s or more", got, want)
			}
		}
	}
	if got := times.Jittered(1000, first, last); got < last/2 || got > last {
		t.Errorf("the longest jittered pause is %s", got)
	}
}

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

func TestShort(t *testing.T) {
	for _, want := range []string{"0s", "10s", "30m", "30m1s", "10h", "10h20m", "1h0m1s"} {
		if d, err := time.ParseDuration(want); err != nil || times.Short(d) != want {
			t.Errorf("%s is %s", want, times.Short(d))
		}
	}
}
