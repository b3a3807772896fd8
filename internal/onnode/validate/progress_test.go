package validate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

const (
	validMarker = "BOOT_ID=boot-now\nDRIVER_INSTANCE=pod-1\nSTARTED_AT=1\n"
	second      = "DRIVER_INSTANCE: pod-2\n"
)

// What a run has left of its start is in the marker of the next one, if that is for the same driver.
func TestProgressOutlivesARunThatFails(t *testing.T) {
	tests := map[string]struct {
		// before is the marker that the first run finds.
		before string
		// during happens while the first run fails, between after it has failed.
		during, between func(dir string) error
		// restarted is set if the second run starts again.
		restarted, renewed bool
	}{
		"if the component was never validated": {},
		"if it was validated":                  {before: validMarker, renewed: true},
		"with a driver that becomes ready in the meantime": {
			during: func(dir string) error { return replace(dir, ".driver-ctr-ready", second) }},
		"but not into another boot": {before: validMarker, restarted: true, between: func(dir string) error {
			content, err := os.ReadFile(filepath.Join(dir, "toolkit.proving"))
			return errors.Join(err,
				replace(dir, "toolkit.proving", strings.ReplaceAll(string(content), "boot-now", "boot-before")))
		}},
		"but not to another driver": {before: validMarker, restarted: true,
			between: func(dir string) error { return replace(dir, ".driver-ctr-ready", second) }},
		"but not if its file is incomplete": {before: validMarker, restarted: true,
			between: func(dir string) error { return replace(dir, "toolkit.proving", "STARTED_AT=1\nRENEWED=true\n") }},
		"but not if its file has no valid time": {before: validMarker, restarted: true, between: func(dir string) error {
			return replace(dir, "toolkit.proving", strings.ReplaceAll(validMarker, "AT=1", "AT=noon")+"RENEWED=true\n")
		}},
		"but not with a time in the future": {restarted: true, between: func(dir string) error {
			return replace(dir, "toolkit.proving", strings.ReplaceAll(validMarker, "AT=1", "AT=99999999999"))
		}},
		"but not past a valid marker": {
			restarted: true,
			renewed:   true,
			between:   func(dir string) error { return replace(dir, "toolkit-ready", validMarker) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				g.Expect(replace(dir, ".driver-ctr-ready", "DRIVER_INSTANCE: pod-1\n")).To(Succeed())
				if tc.before != "" {
					g.Expect(replace(dir, "toolkit-ready", tc.before)).To(Succeed())
				}
				first, began := failingRun(t, dir), time.Now()
				if tc.during != nil {
					first.Check = after(first.Check, 30*time.Second, func() error { return tc.during(dir) })
				}
				g.Expect(first.Validate(t.Context())).To(MatchError("no GPU"))
				if tc.between != nil {
					g.Expect(tc.between(dir)).To(Succeed())
				}
				again := time.Now()
				g.Expect(again.Sub(began)).To(BeNumerically(">=", time.Minute))

				good, _ := newRun(t, func(context.Context) ([]marker.Assignment, error) { return nil, nil })
				good.Markers.Path = dir
				g.Expect(good.Validate(t.Context())).To(Succeed())

				if tc.restarted {
					began = again
				}
				g.Expect(valueOf(g, good.Markers, "toolkit", "STARTED_AT")).To(Equal(began.Unix()))
				content, err := os.ReadFile(filepath.Join(dir, "toolkit-ready"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(strings.Contains(string(content), "RENEWED=true\n")).To(Equal(tc.renewed), string(content))
				g.Expect(filepath.Join(dir, "toolkit.proving")).NotTo(BeAnExistingFile())
			})
		})
	}
}

// A run may be killed at any moment: once the marker is missing, the file exists.
func TestProgressIsOnDiskBeforeTheMarkerIsRemoved(t *testing.T) {
	g := NewWithT(t)
	run, _ := newRun(t, nil)
	g.Expect(replace(run.Markers.Path, "toolkit-ready", strings.ReplaceAll(validMarker, "pod-1", ""))).To(Succeed())
	var found string
	run.Check = func(context.Context) ([]marker.Assignment, error) {
		content, err := os.ReadFile(filepath.Join(run.Markers.Path, "toolkit.proving"))
		found = string(content)
		return nil, err
	}
	g.Expect(run.Validate(t.Context())).To(Succeed())
	g.Expect(found).To(MatchRegexp("^RENEWED=true\nSTARTED_AT=[0-9]+\nBOOT_ID=boot-now\nDRIVER_INSTANCE=\n$"))
}

// The file is for the metrics only: a run that cannot write it validates nevertheless.
func TestProgressThatCannotBeWrittenIsNoFailure(t *testing.T) {
	g := NewWithT(t)
	check, _ := script(errors.New("not yet"), nil)
	run, log := newRun(t, check)
	g.Expect(os.MkdirAll(filepath.Join(run.Markers.Path, "toolkit.proving", "x"), 0o700)).To(Succeed())
	err := run.Validate(t.Context())
	g.Expect(run.Markers.Read("toolkit")).NotTo(BeEmpty())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(log.String(), "level=WARN")).To(Equal(2), log.String())
}

// failingRun is a run in dir that fails after a minute.
func failingRun(t *testing.T, dir string) Run {
	t.Helper()
	run, _ := newRun(t, func(context.Context) ([]marker.Assignment, error) { return nil, errors.New("no GPU") })
	run.Markers.Path, run.FailAfter = dir, time.Minute
	run.Interval, run.MaxInterval = DefaultInterval, DefaultMaxInterval
	return run
}

// after returns check, which calls happens once before the first attempt after this time.
func after(check Check, wait time.Duration, happens func() error) Check {
	began := time.Now()
	return func(ctx context.Context) ([]marker.Assignment, error) {
		if happens != nil && time.Since(began) >= wait {
			if err := happens(); err != nil {
				return nil, err
			}
			happens = nil
		}
		return check(ctx)
	}
}

// replace writes a file atomically, like its writers.
func replace(dir, name, content string) error {
	path := filepath.Join(dir, name)
	return errors.Join(os.WriteFile(path+".tmp", []byte(content), 0o600), os.Rename(path+".tmp", path))
}
