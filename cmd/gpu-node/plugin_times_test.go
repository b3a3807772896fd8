package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

// An attempt may last longer than its pod, whatever the timeout of that, so that its reason is what the pod waits for.
func TestTimesOfAWorkload(t *testing.T) {
	tests := map[string]struct {
		args                           []string
		attempt, interval, maxInterval time.Duration
		err                            string
	}{
		"by default": {attempt: 5 * time.Minute, interval: 30 * time.Second, maxInterval: 5 * time.Minute},
		"of a long one": {
			args:        []string{"--test-pod-timeout=10m"},
			attempt:     11 * time.Minute,
			interval:    30 * time.Second,
			maxInterval: 5 * time.Minute,
		},
		"of a short one": {
			args:        []string{"--test-pod-timeout=10s"},
			attempt:     70 * time.Second,
			interval:    30 * time.Second,
			maxInterval: 5 * time.Minute,
		},
		"as given": {
			args:        []string{"--attempt-timeout=4m1s", "--interval=1s", "--max-interval=2s"},
			attempt:     241 * time.Second,
			interval:    time.Second,
			maxInterval: 2 * time.Second,
		},
		"with a longer pause": {
			args:        []string{"--interval=10m"},
			attempt:     5 * time.Minute,
			interval:    10 * time.Minute,
			maxInterval: 10 * time.Minute,
		},
		"shorter than its pod": {
			args: []string{"--attempt-timeout=1m"},
			err:  "--attempt-timeout=1m0s must be above --test-pod-timeout=4m0s",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var (
				validation validation
				plugin     plugin
				flags      = pflag.NewFlagSet("plugin", pflag.ContinueOnError)
			)
			validation.register(flags)
			plugin.register(flags)
			g.Expect(flags.Parse(tc.args)).To(Succeed())
			err := validation.slowDown(flags, plugin.testPodTimeout)
			if tc.err != "" {
				g.Expect(err).To(MatchError(tc.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect([]time.Duration{validation.attemptTimeout, validation.interval, validation.maxInterval}).To(
				Equal([]time.Duration{tc.attempt, tc.interval, tc.maxInterval}))
		})
	}
}
