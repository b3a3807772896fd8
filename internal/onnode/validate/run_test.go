package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// newRun returns a Run in a temporary directory, with short pauses, and its log.
func newRun(t *testing.T, check Check) (Run, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return Run{
		Component: "toolkit", Check: check,
		Markers:  marker.Dir{Path: t.TempDir(), BootID: "boot-now"},
		Interval: time.Millisecond, MaxInterval: 4 * time.Millisecond, AttemptTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

// script is a check whose attempts end as listed, the last one repeatedly.
func script(results ...error) (check Check, attempts *int) {
	attempts = new(int)
	return func(context.Context) ([]marker.Assignment, error) {
		err := results[min(*attempts, len(results)-1)]
		*attempts++
		return nil, err
	}, attempts
}

func write(t *testing.T, path, content string) {
	t.Helper()
	NewWithT(t).Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

func TestValidateRetriesAndLogsAReasonOnlyWhenItChanges(t *testing.T) {
	g := NewWithT(t)
	no, other := errors.New("no GPU"), errors.New("no permission")
	check, attempts := script(no, no, no, other, other, nil)
	run, log := newRun(t, check)
	write(t, filepath.Join(run.Markers.Path, "toolkit.reason"), "of an earlier run")

	g.Expect(run.Validate(t.Context())).To(Succeed())

	g.Expect(*attempts).To(Equal(6))
	g.Expect(strings.Count(log.String(), "no GPU")).To(Equal(1))
	g.Expect(strings.Count(log.String(), "no permission")).To(Equal(1))
	g.Expect(run.Markers.Read("toolkit")).NotTo(BeEmpty())
	g.Expect(filepath.Join(run.Markers.Path, "toolkit.reason")).NotTo(BeAnExistingFile())
}

func TestValidateRemovesTheOldMarkerBeforeItChecks(t *testing.T) {
	g := NewWithT(t)
	var found error
	run, _ := newRun(t, nil)
	write(t, filepath.Join(run.Markers.Path, "toolkit-ready"), "BOOT_ID=boot-now\n")
	run.Check = func(context.Context) ([]marker.Assignment, error) {
		_, found = run.Markers.Read("toolkit")
		return nil, nil
	}
	g.Expect(run.Validate(t.Context())).To(Succeed())
	g.Expect(found).To(MatchError("toolkit-ready is missing"))
}

func TestValidateFailsWithOneSentence(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	run, _ := newRun(t, nil)
	attempts := 0
	run.Check = func(context.Context) ([]marker.Assignment, error) {
		if attempts++; attempts == 3 {
			cancel(errors.New("terminated signal received"))
			return nil, errors.New("signal: killed")
		}
		return nil, errors.New("no GPU; buy one")
	}

	err := run.Validate(ctx)

	const sentence = "toolkit is not validated (terminated signal received): no GPU; buy one"
	g.Expect(err).To(MatchError(sentence))
	g.Expect(os.ReadFile(filepath.Join(run.Markers.Path, "toolkit.reason"))).To(BeEquivalentTo(sentence + "\n"))
	g.Expect(filepath.Join(run.Markers.Path, "toolkit-ready")).NotTo(BeAnExistingFile())
}

func TestValidateFailsOnceItsAttemptsHaveFailedForLong(t *testing.T) {
	broken, pending := errors.New("no GPU; buy one"), pendingDependency{errors.New("no driver yet")}
	const hours = 5 * time.Hour
	tests := map[string]struct {
		failAfter time.Duration
		// attempt returns the result of an attempt that begins after this time.
		attempt func(after time.Duration) error
		err     string
		took    types.GomegaMatcher
	}{
		"after that time, with the reason of the last attempt": {
			failAfter: time.Minute, attempt: func(time.Duration) error { return broken },
			err: "no GPU; buy one", took: BeNumerically("~", time.Minute, 30*time.Second),
		},
		"never, if configured": {
			attempt: func(after time.Duration) error {
				if after < hours {
					return broken
				}
				return nil
			},
			took: BeNumerically("~", hours, time.Minute),
		},
		"not while another component is pending": {
			failAfter: time.Minute, attempt: func(after time.Duration) error {
				if after < hours {
					return fmt.Errorf("wrapped: %w", pending)
				}
				return nil
			},
			took: BeNumerically("~", hours, time.Minute),
		},
		"with a count that restarts when another component is pending again": {
			failAfter: time.Hour, attempt: func(after time.Duration) error {
				if after > 45*time.Minute && after < 50*time.Minute {
					return pending
				}
				return broken
			},
			err: "no GPU; buy one", took: BeNumerically("~", 110*time.Minute, time.Minute),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				began := time.Now()
				run, _ := newRun(t,
					func(context.Context) ([]marker.Assignment, error) { return nil, tc.attempt(time.Since(began)) })
				run.Markers.Path, run.FailAfter = dir, tc.failAfter
				run.Interval, run.MaxInterval = DefaultInterval, DefaultMaxInterval

				err := run.Validate(t.Context())

				g.Expect(time.Since(began)).To(tc.took)
				if tc.err == "" {
					g.Expect(err).NotTo(HaveOccurred())
					return
				}
				g.Expect(err).To(MatchError(tc.err))
				g.Expect(os.ReadFile(filepath.Join(dir, "toolkit.reason"))).To(BeEquivalentTo(tc.err + "\n"))
			})
		})
	}
}

func TestValidateLimitsAnAttempt(t *testing.T) {
	g := NewWithT(t)
	attempts := 0
	run, log := newRun(t, func(ctx context.Context) ([]marker.Assignment, error) {
		if attempts++; attempts == 1 {
			<-ctx.Done()
			return nil, explain(ctx, "/usr/bin/nvidia-smi", nil, errors.New("signal: killed"))
		}
		return nil, nil
	})
	run.AttemptTimeout = 10 * time.Millisecond
	g.Expect(run.Validate(t.Context())).To(Succeed())
	g.Expect(log.String()).
		To(ContainSubstring("/usr/bin/nvidia-smi was stopped: it does not end within 10ms; see the kernel log"))
}

func TestValidateStartsNoSecondCheckWhileOneHangs(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	forever := make(chan struct{})
	defer close(forever)
	attempts := make(chan struct{}, 10)
	run, _ := newRun(t, func(context.Context) ([]marker.Assignment, error) {
		attempts <- struct{}{}
		<-forever // Like a process in an uninterruptible sleep.
		return nil, nil
	})
	run.AttemptTimeout = time.Millisecond
	logged := make(chan struct{})
	run.Log = slog.New(slog.NewTextHandler(notify(logged), nil))
	done := make(chan error, 1)
	go func() { done <- run.Validate(ctx) }()
	g.Eventually(logged, "1m").Should(BeClosed())
	cancel(errors.New("terminated signal received"))

	var err error
	g.Eventually(done, "1m").Should(Receive(&err))
	g.Expect(err).To(MatchError(ContainSubstring("the check hangs and cannot be killed")))
	g.Expect(attempts).To(HaveLen(1))
}

// notify is closed by the first line of a log.
type notify chan struct{}

func (n notify) Write(line []byte) (int, error) {
	close(n)
	return len(line), nil
}

func TestValidateRepeatsACheckDuringWhichTheDriverWasReplaced(t *testing.T) {
	g := NewWithT(t)
	attempts := 0
	run, log := newRun(t, nil)
	run.Check = func(context.Context) ([]marker.Assignment, error) {
		if attempts++; attempts == 1 {
			write(t, filepath.Join(run.Markers.Path, ".driver-ctr-ready"), "DRIVER_INSTANCE: pod-2\n")
		}
		return nil, nil
	}
	g.Expect(run.Validate(t.Context())).To(Succeed())
	g.Expect(attempts).To(Equal(2))
	g.Expect(log.String()).To(ContainSubstring("the driver container was replaced during the check"))
	content, err := os.ReadFile(filepath.Join(run.Markers.Path, "toolkit-ready"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(MatchRegexp("^STARTED_AT=[0-9]+\nBOOT_ID=boot-now\nDRIVER_INSTANCE=pod-2\n$"))
}

func TestValidateMarksThatItReplacesAValidMarker(t *testing.T) {
	const renewed = "RENEWED=true\n"
	tests := map[string]struct {
		before string
		want   string
	}{
		"if the marker could be trusted":         {before: "BOOT_ID=boot-now\nDRIVER_INSTANCE=\n", want: renewed},
		"not if there was none":                  {},
		"not if the marker is of another boot":   {before: "BOOT_ID=boot-before\nDRIVER_INSTANCE=\n"},
		"not if the marker is of another driver": {before: "BOOT_ID=boot-now\nDRIVER_INSTANCE=pod-1\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			check, _ := script(errors.New("not yet"), nil)
			run, _ := newRun(t, check)
			path := filepath.Join(run.Markers.Path, "toolkit-ready")
			if tc.before != "" {
				write(t, path, tc.before)
			}
			g.Expect(run.Validate(t.Context())).To(Succeed())
			if tc.want == "" {
				g.Expect(os.ReadFile(path)).NotTo(ContainSubstring("RENEWED"))
				return
			}
			g.Expect(os.ReadFile(path)).To(ContainSubstring(tc.want))
		})
	}
}

// What is called back is the driver instance of the marker, which exists by then.
func TestValidateNamesTheDriverInstance(t *testing.T) {
	for instance, container := range map[string]string{"pod-1": "DRIVER_INSTANCE: pod-1\n", "": ""} {
		t.Run("instance "+instance, func(t *testing.T) {
			g := NewWithT(t)
			check, _ := script(errors.New("not yet"), nil)
			run, _ := newRun(t, check)
			if container != "" {
				write(t, filepath.Join(run.Markers.Path, ".driver-ctr-ready"), container)
			}
			var named []string
			run.Validated = func(driverInstance string) {
				g.Expect(os.ReadFile(filepath.Join(run.Markers.Path, "toolkit-ready"))).
					To(ContainSubstring("DRIVER_INSTANCE=" + driverInstance + "\n"))
				named = append(named, driverInstance)
			}
			g.Expect(run.Validate(t.Context())).To(Succeed())
			g.Expect(named).To(Equal([]string{instance}))
		})
	}
}

func TestValidateWritesTheMarkersOfCompanionsThatApply(t *testing.T) {
	g := NewWithT(t)
	run, log := newRun(t, nil)
	var attempts int
	run.Check = func(context.Context) ([]marker.Assignment, error) {
		for _, m := range []labels.Marker{"toolkit", "gdrcopy", "nvidia-fs"} {
			_, err := run.Markers.Read(m)
			g.Expect(err).To(MatchError(m.File()+" is missing"), "removed before the check")
		}
		attempts++
		return []marker.Assignment{{Key: "A", Value: "1"}}, nil
	}
	run.Companions = []Companion{
		{Marker: "gdrcopy", Check: func(found []marker.Assignment) (bool, error) {
			g.Expect(found).To(Equal([]marker.Assignment{{Key: "A", Value: "1"}}))
			return true, nil
		}},
		{Marker: "nvidia-fs", Check: func([]marker.Assignment) (bool, error) {
			if attempts < 3 {
				return false, errors.New("no module")
			}
			return false, nil
		}},
	}
	for _, m := range []labels.Marker{"toolkit", "gdrcopy", "nvidia-fs"} {
		write(t, filepath.Join(run.Markers.Path, m.File()), "BOOT_ID=boot-now\n")
	}

	g.Expect(run.Validate(t.Context())).To(Succeed())

	g.Expect(attempts).To(Equal(3))
	g.Expect(strings.Count(log.String(), "no module")).To(Equal(1))
	g.Expect(run.Markers.Read("toolkit")).NotTo(BeEmpty())
	g.Expect(run.Markers.Read("gdrcopy")).NotTo(BeEmpty())
	_, err := run.Markers.Read("nvidia-fs")
	g.Expect(err).To(MatchError("nvidia-fs-ready is missing"))
}

func TestPauseDoublesUpToItsLimit(t *testing.T) {
	g := NewWithT(t)
	run, _ := newRun(t, nil)
	var pauses []time.Duration
	for pause := run.Interval; len(pauses) < 5; pause = run.pause(t.Context(), errors.New("no GPU"), pause) {
		pauses = append(pauses, pause)
	}
	g.Expect(pauses).To(Equal([]time.Duration{
		time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 4 * time.Millisecond, 4 * time.Millisecond}))
}
