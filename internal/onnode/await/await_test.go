package await_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/await"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

var (
	errTooLate = errors.New("the pod ends")
	root       = marker.Assignment{Key: labels.DriverRootKey, Value: "/run/nvidia/driver"}
)

// node is a directory of markers of the boot "now".
func node(t *testing.T) marker.Dir {
	t.Helper()
	return marker.Dir{Path: t.TempDir(), BootID: "now"}
}

func put(t *testing.T, dir marker.Dir, file, content string) {
	t.Helper()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(dir.Path, file), []byte(content), 0o600)).To(Succeed())
}

// impatient returns a context that ends while a wait that does not succeed immediately is blocked.
func impatient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errTooLate)
	t.Cleanup(cancel)
	return ctx
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestMarkers(t *testing.T) {
	const current, before = "BOOT_ID=now\nDRIVER_INSTANCE=\n", "BOOT_ID=before\nDRIVER_INSTANCE=\n"
	const follows = "RUNTIME_FOLLOWS=true\n" + current
	for name, test := range map[string]struct {
		files    map[string]string
		wanted   []labels.Marker
		injected bool
		// fails are parts of the error; none if the wait succeeds.
		fails []string
	}{
		"none is wanted": {},
		"all are there": {
			files:  map[string]string{"driver-ready": current, "toolkit-ready": current},
			wanted: []labels.Marker{labels.MarkerDriver, labels.MarkerToolkit},
		},
		"one is missing": {
			files:  map[string]string{"driver-ready": current},
			wanted: []labels.Marker{labels.MarkerDriver, labels.MarkerToolkit},
			fails:  []string{"for driver, toolkit: ", "toolkit-ready is missing"},
		},
		"each that cannot be trusted has its reason": {
			files:  map[string]string{"driver-ready": before},
			wanted: []labels.Marker{labels.MarkerDriver, labels.MarkerToolkit},
			fails:  []string{"driver-ready is stale", "; toolkit-ready is missing"},
		},
		"a malformed one": {
			files:  map[string]string{"driver-ready": "BOOT_ID=$(id)\n"},
			wanted: []labels.Marker{labels.MarkerDriver},
			fails:  []string{"driver-ready is malformed"},
		},
		"one of another driver container": {
			files: map[string]string{
				"toolkit-ready":     "BOOT_ID=now\nDRIVER_INSTANCE=pod-1\n",
				".driver-ctr-ready": "DRIVER_INSTANCE: pod-2\n",
			},
			wanted: []labels.Marker{labels.MarkerToolkit},
			fails:  []string{`toolkit-ready is stale: it was written for driver instance "pod-1"`},
		},
		"the runtime has not restarted yet, for injected GPUs": {
			files:    map[string]string{"driver-ready": follows},
			wanted:   []labels.Marker{labels.MarkerDriver},
			injected: true,
			fails:    []string{string(labels.MarkerRuntime) + "-ready is missing"},
		},
		"the runtime has not restarted yet, without injected GPUs": {
			files:  map[string]string{"driver-ready": follows},
			wanted: []labels.Marker{labels.MarkerDriver},
		},
		"the runtime has restarted": {
			files:    map[string]string{"driver-ready": follows, labels.MarkerRuntime.File(): current},
			wanted:   []labels.Marker{labels.MarkerDriver},
			injected: true,
		},
		"the runtime needs no restart": {
			files:    map[string]string{"driver-ready": current},
			wanted:   []labels.Marker{labels.MarkerDriver},
			injected: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := node(t)
			for file, content := range test.files {
				put(t, dir, file, content)
			}
			err := await.Markers(impatient(t), dir, silent(), test.injected, test.wanted...)
			if len(test.fails) == 0 {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(errTooLate))
			for _, part := range test.fails {
				g.Expect(err).To(MatchError(ContainSubstring(part)))
			}
		})
	}
}

// A wait that polls would take 30 seconds.
func TestWaitsEndWithTheFile(t *testing.T) {
	for name, test := range map[string]struct {
		wait  func(ctx context.Context, dir marker.Dir, log *slog.Logger) error
		write func(dir marker.Dir) error
	}{
		"markers": {
			wait: func(ctx context.Context, dir marker.Dir, log *slog.Logger) error {
				return await.Markers(ctx, dir, log, false, labels.MarkerToolkit)
			},
			write: func(dir marker.Dir) error { return dir.Write(labels.MarkerToolkit, nil, "") },
		},
		"assignments": {
			wait: func(ctx context.Context, dir marker.Dir, log *slog.Logger) error {
				_, err := await.Assignments(ctx, dir, log, labels.MarkerDriver)
				return err
			},
			write: func(dir marker.Dir) error { return dir.Write(labels.MarkerDriver, nil, "") },
		},
		"the driver container": {
			wait: func(ctx context.Context, dir marker.Dir, log *slog.Logger) error {
				return await.DriverContainer(ctx, dir, log, "pod-1", dir.Path)
			},
			write: func(dir marker.Dir) error {
				return os.WriteFile(filepath.Join(dir.Path, ".driver-ctr-ready"), []byte("DRIVER_INSTANCE: pod-1\n"), 0o600)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := node(t)
			ended := make(chan error, 1)
			log := gbytes.NewBuffer()
			go func() { ended <- test.wait(t.Context(), dir, slog.New(slog.NewTextHandler(log, nil))) }()
			g.Eventually(log, "1m").Should(gbytes.Say("waiting for"))
			g.Expect(ended).NotTo(Receive())
			g.Expect(test.write(dir)).To(Succeed())
			g.Eventually(ended, "1m").Should(Receive(Succeed()))
		})
	}
}

func TestAssignments(t *testing.T) {
	g := NewWithT(t)
	dir := node(t)
	found, err := await.Assignments(impatient(t), dir, silent(), labels.MarkerDriver)
	g.Expect(err).To(MatchError(errTooLate))
	g.Expect(err).To(MatchError(ContainSubstring("driver-ready is missing")))
	g.Expect(found).To(BeEmpty())

	g.Expect(dir.Write(labels.MarkerDriver, []marker.Assignment{root}, "")).To(Succeed())
	found, err = await.Assignments(t.Context(), dir, silent(), labels.MarkerDriver)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(ContainElement(root))
}

func TestDriverContainer(t *testing.T) {
	const file = ".driver-ctr-ready"
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir marker.Dir, sources string)
		fails   string
	}{
		"up": {prepare: func(t *testing.T, dir marker.Dir, sources string) {
			put(t, dir, file, "DRIVER_INSTANCE: pod-1\n")
			NewWithT(t).Expect(os.Mkdir(sources, 0o700)).To(Succeed())
		}},
		"its probe has not passed": {
			prepare: func(*testing.T, marker.Dir, string) {},
			fails:   "its start-up probe has not passed (.driver-ctr-ready is missing)",
		},
		"that of another pod is up": {
			prepare: func(t *testing.T, dir marker.Dir, sources string) {
				put(t, dir, file, "DRIVER_INSTANCE: pod-2\n")
				NewWithT(t).Expect(os.Mkdir(sources, 0o700)).To(Succeed())
			},
			fails: ".driver-ctr-ready is of another pod",
		},
		"its sources are not visible": {
			prepare: func(t *testing.T, dir marker.Dir, _ string) { put(t, dir, file, "DRIVER_INSTANCE: pod-1\n") },
			fails:   "its root file system is not shared yet",
		},
		"the file cannot be read": {
			prepare: func(t *testing.T, dir marker.Dir, _ string) {
				NewWithT(t).Expect(os.Mkdir(filepath.Join(dir.Path, file), 0o700)).To(Succeed())
			},
			fails: ".driver-ctr-ready cannot be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir, sources := node(t), filepath.Join(t.TempDir(), "src")
			test.prepare(t, dir, sources)
			err := await.DriverContainer(impatient(t), dir, silent(), "pod-1", sources)
			if test.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(errTooLate))
			g.Expect(err).To(MatchError(ContainSubstring("for the driver container of this pod: ")))
			g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
		})
	}
}
