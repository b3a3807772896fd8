package probe_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/probe"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/restart"
)

const readyFile = ".driver-ctr-ready"

func write(t *testing.T, path, content string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o700)).To(Succeed())
}

// driver returns the probe of a driver container that has started, whose nvidia-smi is this script.
func driver(t *testing.T, nvidiaSMI string) probe.Driver {
	t.Helper()
	root := t.TempDir()
	for _, key := range []string{labels.GDRCopyEnabledKey, labels.GDSEnabledKey, labels.RDMAEnabledKey} {
		t.Setenv(key, "")
	}
	t.Setenv("PATH", filepath.Join(root, "bin"))
	write(t, filepath.Join(root, "bin/nvidia-smi"), "#!/bin/sh\n"+nvidiaSMI+"\n")
	write(t, filepath.Join(root, "sys/module/nvidia/refcnt"), "0\n")
	return probe.Driver{Dir: filepath.Join(root, "validations"), SysRoot: filepath.Join(root, "sys"), Pod: "pod-1"}
}

func TestDriver(t *testing.T) {
	for name, test := range map[string]struct {
		nvidiaSMI string
		prepare   func(t *testing.T, p probe.Driver)
		fails     string
	}{
		"started": {},
		"the module is not loaded": {
			prepare: func(t *testing.T, p probe.Driver) {
				NewWithT(t).Expect(os.RemoveAll(filepath.Join(p.SysRoot, "module/nvidia"))).To(Succeed())
			},
			fails: "the kernel module nvidia is not loaded yet",
		},
		"the module's count is no file": {
			prepare: func(t *testing.T, p probe.Driver) {
				refcnt := filepath.Join(p.SysRoot, "module/nvidia/refcnt")
				NewWithT(t).Expect(os.Remove(refcnt)).To(Succeed())
				NewWithT(t).Expect(os.Mkdir(refcnt, 0o700)).To(Succeed())
			},
			fails: "the kernel module nvidia is not loaded yet",
		},
		"its daemons are not up": {
			prepare: func(t *testing.T, p probe.Driver) {
				write(t, filepath.Join(p.Dir, labels.DriverDaemonsStatus), "NotReady\n")
			},
			fails: "the daemons of the driver are not up yet",
		},
		"the state of its daemons cannot be read": {
			prepare: func(t *testing.T, p probe.Driver) {
				NewWithT(t).Expect(os.MkdirAll(filepath.Join(p.Dir, labels.DriverDaemonsStatus), 0o700)).To(Succeed())
			},
			fails: "the state of the driver's daemons cannot be read",
		},
		"nvidia-smi fails": {nvidiaSMI: "exit 6", fails: "nvidia-smi failed: exit status 6"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := driver(t, test.nvidiaSMI)
			if test.prepare != nil {
				test.prepare(t, p)
			}
			err := p.Run(t.Context())
			if test.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
				g.Expect(filepath.Join(p.Dir, readyFile)).NotTo(BeAnExistingFile())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			container, err := marker.Dir{Path: p.Dir}.Container()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(container.Ready).To(BeTrue())
			g.Expect(container.DriverInstance).To(Equal("pod-1"))
		})
	}
}

func TestDriverReportsAFileThatCannotBeWritten(t *testing.T) {
	g := NewWithT(t)
	p := driver(t, "")
	g.Expect(os.MkdirAll(filepath.Join(p.Dir, readyFile), 0o700)).To(Succeed())
	g.Expect(p.Run(t.Context())).To(MatchError(ContainSubstring("write " + filepath.Join(p.Dir, readyFile))))
}

// What the probe writes is what the package marker reads.
func TestDriverWritesTheModulesOfItsSidecars(t *testing.T) {
	g := NewWithT(t)
	p := driver(t, "")
	t.Setenv(labels.GDSEnabledKey, "true")
	g.Expect(p.Run(t.Context())).To(Succeed())
	container, err := marker.Dir{Path: p.Dir}.Container()
	g.Expect(err).NotTo(HaveOccurred())
	for key, want := range map[string]bool{
		labels.GDSEnabledKey: true, labels.GDRCopyEnabledKey: false, labels.RDMAEnabledKey: false,
	} {
		enabled, err := container.Enabled(key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(enabled).To(Equal(want), key)
	}
}

func TestDriverWaitsUntilItsContextEnds(t *testing.T) {
	g := NewWithT(t)
	p := driver(t, "exit 6")
	p.Within = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	g.Expect(p.Run(ctx)).To(MatchError(ContainSubstring("nvidia-smi failed")))
	g.Expect(time.Since(begin)).To(BeNumerically("<", 30*time.Second))
}

// A failed nvidia-smi is tried again after a second, and the container's log has what it prints.
func TestDriverRepeatsNvidiaSMI(t *testing.T) {
	g := NewWithT(t)
	p := driver(t, `for try in 1 2; do
	test -e "$0.$try" || { echo "$try"; echo "no $try" >&2; : >"$0.$try"; exit 6; }
done`)
	p.Within = time.Minute
	outputs := [2]string{filepath.Join(t.TempDir(), "stdout"), filepath.Join(t.TempDir(), "stderr")}
	for i, stream := range []**os.File{&os.Stdout, &os.Stderr} {
		before := *stream
		file, err := os.Create(outputs[i])
		g.Expect(err).NotTo(HaveOccurred())
		*stream = file
		defer func() { *stream = before; _ = file.Close() }()
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		g.Expect(p.Run(t.Context())).To(Succeed())
		g.Expect(time.Since(begin)).To(Equal(2 * time.Second))
	})
	for i, want := range []string{"1\n2\n", "no 1\nno 2\n"} {
		printed, err := os.ReadFile(outputs[i])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(printed)).To(Equal(want))
	}
}

func TestDriverNoticesTheModule(t *testing.T) {
	g := NewWithT(t)
	p := driver(t, "")
	p.Within = time.Minute
	refcnt := filepath.Join(p.SysRoot, "module/nvidia/refcnt")
	g.Expect(os.Remove(refcnt)).To(Succeed())
	noticed(t, p.Run, func() { write(t, refcnt, "0\n") })
}

// noticed checks that a wait goes on for longer than its pauses, and ends after the change.
func noticed(t *testing.T, wait func(context.Context) error, change func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		go func() { ended <- wait(t.Context()) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		NewWithT(t).Expect(ended).NotTo(Receive())
		change()
		NewWithT(t).Expect(<-ended).To(Succeed())
	})
}

// toolkit returns the probe of a toolkit whose container runtime is this process.
func toolkit(t *testing.T) probe.Toolkit {
	t.Helper()
	dir := t.TempDir()
	p := probe.Toolkit{
		Socket: filepath.Join(dir, "runtime.sock"), StartedFile: filepath.Join(dir, "started"), ProcRoot: "/proc",
		Patience: time.Hour,
	}
	listener, err := net.Listen("unix", p.Socket)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	return p
}

// startedAgo notes that the toolkit has started so long ago.
func startedAgo(t *testing.T, p probe.Toolkit, ago time.Duration) {
	t.Helper()
	now, err := restart.Now()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	write(t, p.StartedFile, strconv.FormatInt(int64(now-ago), 10)+"\n")
}

func TestToolkit(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, p *probe.Toolkit)
		fails   string
	}{
		"the runtime has restarted since": {
			// This process has started later.
			prepare: func(t *testing.T, p *probe.Toolkit) { startedAgo(t, *p, 20*time.Minute) },
		},
		"the runtime has not restarted yet": {
			prepare: func(t *testing.T, p *probe.Toolkit) { NewWithT(t).Expect(restart.Note(p.StartedFile)).To(Succeed()) },
			fails:   "has not restarted yet",
		},
		"no restart is expected any more": {
			prepare: func(t *testing.T, p *probe.Toolkit) {
				startedAgo(t, *p, time.Minute)
				p.Patience = 30 * time.Second
				p.Socket += ".none"
			},
		},
		"the toolkit has not been started": {
			prepare: func(*testing.T, *probe.Toolkit) {},
			fails:   "the toolkit has not been started yet",
		},
		"its start cannot be read": {
			prepare: func(t *testing.T, p *probe.Toolkit) { write(t, p.StartedFile, "soon\n") },
			fails:   "read ",
		},
		"the runtime is down": {
			prepare: func(t *testing.T, p *probe.Toolkit) {
				startedAgo(t, *p, time.Minute)
				p.Socket += ".none"
			},
			fails: "no process accepts connections",
		},
		"the processes of the host are not visible": {
			prepare: func(t *testing.T, p *probe.Toolkit) {
				startedAgo(t, *p, time.Minute)
				p.ProcRoot = t.TempDir()
			},
			fails: "does the pod have hostPID?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := toolkit(t)
			test.prepare(t, &p)
			err := p.Wait(t.Context())
			if test.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
		})
	}
}

func TestToolkitNoticesTheRestart(t *testing.T) {
	for name, start := range map[string]func(*testing.T, probe.Toolkit){
		"no start":        func(*testing.T, probe.Toolkit) {},
		"an unread start": func(t *testing.T, p probe.Toolkit) { write(t, p.StartedFile, "soon\n") },
		"a later start":   func(t *testing.T, p probe.Toolkit) { startedAgo(t, p, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			p := toolkit(t)
			p.Within = time.Minute
			start(t, p)
			noticed(t, p.Wait, func() { startedAgo(t, p, 20*time.Minute) })
		})
	}
}

func TestNoteRuntime(t *testing.T) {
	const container = "DRIVER_INSTANCE: pod-1\n"
	const ofPod1, ofPod2 = "BOOT_ID=now\nDRIVER_INSTANCE=pod-1\n", "BOOT_ID=now\nDRIVER_INSTANCE=pod-2\n"
	for name, test := range map[string]struct {
		files map[string]string
		fails string
	}{
		"the driver is validated": {files: map[string]string{readyFile: container, "driver-ready": ofPod1}},
		"a driver on the host":    {files: map[string]string{"driver-ready": "BOOT_ID=now\nDRIVER_INSTANCE=\n"}},
		"the marker of an earlier driver is replaced": {files: map[string]string{
			readyFile: container, "driver-ready": ofPod1, labels.MarkerRuntime.File(): ofPod2,
		}},
		"the driver is not validated": {
			files: map[string]string{readyFile: container},
			fails: "driver-ready is missing",
		},
		"the driver's container cannot be read": {
			files: map[string]string{readyFile + "/x": ""},
			fails: readyFile + " cannot be read",
		},
		"an earlier driver is validated": {
			files: map[string]string{readyFile: container, "driver-ready": ofPod2},
			fails: "driver-ready is stale",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := marker.Dir{Path: t.TempDir(), BootID: "now"}
			for file, content := range test.files {
				write(t, filepath.Join(dir.Path, file), content)
			}
			err := probe.NoteRuntime(dir)
			_, unreadable := dir.Read(labels.MarkerRuntime)
			if test.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
				g.Expect(unreadable).To(HaveOccurred())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(unreadable).NotTo(HaveOccurred())
		})
	}
}

func TestNoteRuntimeReportsAMarkerThatCannotBeWritten(t *testing.T) {
	g := NewWithT(t)
	dir := marker.Dir{Path: t.TempDir(), BootID: "now"}
	g.Expect(dir.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	g.Expect(os.Mkdir(filepath.Join(dir.Path, labels.MarkerRuntime.File()), 0o700)).To(Succeed())
	g.Expect(probe.NoteRuntime(dir)).To(MatchError(ContainSubstring("write ")))
}

// The driver is replaced while its marker is being read, which says so by waiting for a writer.
func TestNoteRuntimeNoticesAnotherDriver(t *testing.T) {
	g := NewWithT(t)
	dir := marker.Dir{Path: t.TempDir(), BootID: "now"}
	ready, validated := filepath.Join(dir.Path, readyFile), filepath.Join(dir.Path, labels.MarkerDriver.File())
	write(t, ready, "DRIVER_INSTANCE: pod-1\n")
	g.Expect(syscall.Mkfifo(validated, 0o600)).To(Succeed())
	go func() {
		pipe, err := os.OpenFile(validated, os.O_WRONLY, 0)
		if err == nil {
			_ = os.WriteFile(ready, []byte("DRIVER_INSTANCE: pod-2\n"), 0o600)
			_, _ = pipe.WriteString("BOOT_ID=now\nDRIVER_INSTANCE=pod-2\n")
			_ = pipe.Close()
		}
	}()
	g.Expect(probe.NoteRuntime(dir)).To(MatchError(ContainSubstring(
		labels.MarkerRuntime.File() + ` is stale: it was written for driver instance "pod-1", now there is "pod-2"`)))
}

// A marker that can be trusted is kept, so that pods which wait for it are not disturbed.
func TestNoteRuntimeKeepsAMarkerThatCanBeTrusted(t *testing.T) {
	g := NewWithT(t)
	dir := marker.Dir{Path: t.TempDir(), BootID: "now"}
	g.Expect(dir.Write(labels.MarkerRuntime, nil, "")).To(Succeed())
	file := filepath.Join(dir.Path, labels.MarkerRuntime.File())
	before, err := os.Stat(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(probe.NoteRuntime(dir)).To(Succeed())
	after, err := os.Stat(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.SameFile(before, after)).To(BeTrue())
}
