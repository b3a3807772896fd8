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
	proven = "BOOT_ID=boot-now\nDRIVER_INSTANCE=pod-1\nSTARTED_AT=1\n"
	second = "DRIVER_INSTANCE: pod-2\n"
)

// What a prover knows of the time before it is in the marker of the next one, too, where that goes on with
// the same driver.
func TestAClimbOutlivesTheProverThatGivesUp(t *testing.T) {
	tests := map[string]struct {
		// before is the marker that the first prover finds.
		before string
		// during happens while the first prover fails, between when it has given up.
		during, between func(dir string) error
		// anew tells that the second prover begins anew.
		anew, renewed bool
	}{
		"where the component was never proved": {},
		"where it was proved":                  {before: proven, renewed: true},
		"with a driver that becomes ready in the meantime": {
			during: func(dir string) error { return replace(dir, ".driver-ctr-ready", second) }},
		"but not into another boot": {before: proven, anew: true, between: func(dir string) error {
			content, err := os.ReadFile(filepath.Join(dir, "toolkit.proving"))
			return errors.Join(err,
				replace(dir, "toolkit.proving", strings.ReplaceAll(string(content), "boot-now", "boot-before")))
		}},
		"but not to another driver": {before: proven, anew: true,
			between: func(dir string) error { return replace(dir, ".driver-ctr-ready", second) }},
		"but not where its file is half written": {before: proven, anew: true,
			between: func(dir string) error { return replace(dir, "toolkit.proving", "STARTED_AT=1\nRENEWED=true\n") }},
		"but not where its file tells no time": {before: proven, anew: true, between: func(dir string) error {
			return replace(dir, "toolkit.proving", strings.ReplaceAll(proven, "AT=1", "AT=noon")+"RENEWED=true\n")
		}},
		"but not with a time that is yet to come": {anew: true, between: func(dir string) error {
			return replace(dir, "toolkit.proving", strings.ReplaceAll(proven, "AT=1", "AT=99999999999"))
		}},
		"but not past a proof": {
			anew:    true,
			renewed: true,
			between: func(dir string) error { return replace(dir, "toolkit-ready", proven) },
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
				first, began := failing(t, dir), time.Now()
				if tc.during != nil {
					first.Check = after(first.Check, 30*time.Second, func() error { return tc.during(dir) })
				}
				g.Expect(first.Prove(t.Context())).To(MatchError("no GPU"))
				if tc.between != nil {
					g.Expect(tc.between(dir)).To(Succeed())
				}
				again := time.Now()
				g.Expect(again.Sub(began)).To(BeNumerically(">=", time.Minute))

				good, _ := prover(t, func(context.Context) ([]marker.Assignment, error) { return nil, nil })
				good.Markers.Path = dir
				g.Expect(good.Prove(t.Context())).To(Succeed())

				if tc.anew {
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

// A prover may be killed at any moment: from when the marker is missing, the file is there.
func TestAClimbIsOnDiskBeforeTheMarkerIsRemoved(t *testing.T) {
	g := NewWithT(t)
	run, _ := prover(t, nil)
	g.Expect(replace(run.Markers.Path, "toolkit-ready", strings.ReplaceAll(proven, "pod-1", ""))).To(Succeed())
	var found string
	run.Check = func(context.Context) ([]marker.Assignment, error) {
		content, err := os.ReadFile(filepath.Join(run.Markers.Path, "toolkit.proving"))
		found = string(content)
		return nil, err
	}
	g.Expect(run.Prove(t.Context())).To(Succeed())
	g.Expect(found).To(MatchRegexp("^RENEWED=true\nSTARTED_AT=[0-9]+\nBOOT_ID=boot-now\nDRIVER_INSTANCE=\n$"))
}

// The file is for the metrics only: a prover that cannot write it proves nevertheless.
func TestAClimbThatCannotBeWrittenIsNoFailure(t *testing.T) {
	g := NewWithT(t)
	check, _ := script(errors.New("not yet"), nil)
	run, log := prover(t, check)
	g.Expect(os.MkdirAll(filepath.Join(run.Markers.Path, "toolkit.proving", "x"), 0o700)).To(Succeed())
	err := run.Prove(t.Context())
	g.Expect(run.Markers.Read("toolkit")).NotTo(BeEmpty())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(log.String(), "level=WARN")).To(Equal(2), log.String())
}

// failing is a prover in dir that gives up after a minute.
func failing(t *testing.T, dir string) Run {
	t.Helper()
	run, _ := prover(t, func(context.Context) ([]marker.Assignment, error) { return nil, errors.New("no GPU") })
	run.Markers.Path, run.FailAfter = dir, time.Minute
	run.Interval, run.MaxInterval = DefaultInterval, DefaultMaxInterval
	return run
}

// after is check, before whose first attempt after that time something happens.
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

// replace writes a file as its writers do: complete at once.
func replace(dir, name, content string) error {
	path := filepath.Join(dir, name)
	return errors.Join(os.WriteFile(path+".tmp", []byte(content), 0o600), os.Rename(path+".tmp", path))
}
