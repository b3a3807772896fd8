package health

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

// A report with one entry of each kind, as a whole.
func TestAReportHasAllThatIsKnown(t *testing.T) {
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	s.measure(sampled(nil), noon, func(string) bool { return false })
	play(t, s, 1, []line{a(time.Minute, 94), a(time.Minute, 13), a(2*time.Minute, 79), sxid("Fatal")})
	s.driver.note(reasonHangs, noon)
	const uuid = "GPU-0b2a"
	reported := gpuhealth.Report{
		Boot: "b", Sequence: 4,
		Faults: []gpuhealth.Fault{
			{
				PCI: gpuA, UUID: uuid, Class: gpuhealth.Reboot, Reason: "GPULost", Xid: 79,
				Since: noon.Add(2 * time.Minute),
			},
			{PCI: nvSwitch, Class: gpuhealth.Reset, Reason: "NVSwitchFatalError", SXid: 12028, Since: noon},
		},
		Notes: []gpuhealth.Note{
			{Class: gpuhealth.Infra, Reason: "NVMLHangs", Since: noon},
			{
				PCI: gpuA, UUID: uuid, Class: gpuhealth.Watch, Reason: "GPUMemoryErrorContained", Xid: 94,
				Since: noon.Add(time.Minute),
			},
			{
				PCI: gpuA, UUID: uuid, Class: gpuhealth.App, Reason: "GPUApplicationError", Xid: 13,
				Since: noon.Add(time.Minute),
			},
		},
		Past: []gpuhealth.Past{{PCI: gpuA, UUID: uuid, Reason: "GPULost", At: noon.Add(2 * time.Minute), Boot: "b"}},
	}
	g.Expect(s.report()).To(Equal(reported))
	again := newState("b", DefaultWindow, reported)
	g.Expect(again.report()).To(Equal(reported))
	g.Expect(again.devices[nvSwitch].isSwitch).To(BeTrue())
	g.Expect(again.devices[gpuA].isSwitch).To(BeFalse())

	s = newState("b", DefaultWindow, gpuhealth.Report{})
	failed := func(_ *nvml.Sample, g *nvml.GPU) { g.Remap.Failed = true }
	s.measure(sampled(failed), noon, func(string) bool { return false })
	g.Expect(s.report().Faults).To(Equal([]gpuhealth.Fault{{
		PCI: gpuA, UUID: uuid, Class: gpuhealth.Reset, Reason: "GPUMemoryRemapFailed",
		NVML: "a row could not be remapped", Since: noon,
	}}))
}

// The faults that NVML shows, from the second session on if a code has shown them, and the action of an agent that is
// started again.
func TestFaultsOfNVML(t *testing.T) {
	code := func(code nvml.Code) nvml.GPU { return nvml.GPU{Code: code} }
	action := func(action nvml.Action) nvml.GPU { return nvml.GPU{Action: &action} }
	for _, test := range []struct {
		gpu    nvml.GPU
		class  gpuhealth.Class
		reason string
		shown  string
		action xid.Action
	}{
		{code(nvml.GPULost), gpuhealth.Reboot, "GPULost", "the gpu is lost", ""},
		{code(nvml.ResetRequired), gpuhealth.Reset, "GPUResetRequired", "the gpu requires a reset", ""},
		{code(nvml.CorruptedInfoROM), gpuhealth.Hardware, "GPUInfoROMCorrupted", "the inforom is corrupted", ""},
		{code(nvml.InsufficientPower), gpuhealth.Hardware, "GPUPowerCableMissing", "the power is insufficient", ""},
		{action(nvml.ActionReset), gpuhealth.Reset, "GPUResetRequired", "recovery action 1", xid.ActionReset},
		{action(nvml.ActionReboot), gpuhealth.Reboot, "NodeRebootRequired", "recovery action 2", xid.ActionReboot},
		{
			action(nvml.ActionDrainPeers), gpuhealth.Reset, "GPUDrainPeersRequired", "recovery action 3",
			xid.ActionDrainPeers,
		},
		{
			action(nvml.ActionDrainAndReset), gpuhealth.Reset, "GPUResetRequired", "recovery action 4",
			xid.ActionDrainAndReset,
		},
	} {
		t.Run(test.shown, func(t *testing.T) {
			g := NewWithT(t)
			s, since := newState("b", DefaultWindow, gpuhealth.Report{}), noon
			if test.action == "" {
				since = noon.Add(time.Minute)
			}
			for i := range 3 {
				s.measure(sampled(func(_ *nvml.Sample, g *nvml.GPU) { g.Code, g.Action = test.gpu.Code, test.gpu.Action }),
					noon.Add(time.Duration(i)*time.Minute), func(string) bool { return true })
			}
			g.Expect(s.report().Faults).To(Equal([]gpuhealth.Fault{{
				PCI: gpuA, UUID: "GPU-0b2a", Class: test.class, Reason: test.reason, NVML: test.shown, Since: since,
			}}))
			again := newState("b", DefaultWindow, s.report())
			g.Expect(again.report()).To(Equal(s.report()))
			g.Expect(again.devices[gpuA].action).To(Equal(test.action))
		})
	}
}

// The next session comes soon only if it could confirm something.
func TestWhatANextSessionCouldConfirm(t *testing.T) {
	code := func(code nvml.Code) func(*nvml.Sample, *nvml.GPU) {
		return func(_ *nvml.Sample, g *nvml.GPU) { g.Code = code }
	}
	all := func(code nvml.Code) func(*nvml.Sample, *nvml.GPU) {
		return func(s *nvml.Sample, _ *nvml.GPU) { s.Code = code }
	}
	reset, mismatch := code(nvml.ResetRequired), all(nvml.LibraryMismatch)
	type changes []func(*nvml.Sample, *nvml.GPU)
	for name, test := range map[string]struct {
		changes changes
		gone    bool
		want    []bool
	}{
		"nothing":                  {changes{nil, nil}, false, []bool{false, false}},
		"a GPU that needs a reset": {changes{reset, reset}, false, []bool{true, false}},
		"another code":             {changes{reset, code(nvml.CorruptedInfoROM)}, false, []bool{true, true}},
		"a code that says nothing": {changes{code(nvml.NotSupported)}, false, []bool{false}},
		"a GPU that is lost":       {changes{code(nvml.GPULost), code(nvml.GPULost)}, true, []bool{true, false}},
		"a GPU that the bus has":   {changes{code(nvml.GPULost)}, false, []bool{false}},
		"a GPU that is not known":  {changes{code(nvml.NotFound), code(nvml.NotFound)}, false, []bool{true, false}},
		"a GPU that is gone":       {changes{code(nvml.NotFound)}, true, []bool{false}},
		"another driver":           {changes{mismatch, mismatch, nil, nil}, false, []bool{true, false, true, false}},
		"a driver that refuses":    {changes{all(nvml.NoPermission)}, false, []bool{true}},
		"a driver not loaded":      {changes{all(nvml.DriverNotLoaded)}, false, []bool{true}},
		"an unknown problem":       {changes{all(nvml.ArgumentVersion)}, false, []bool{false}},
		"a refused GPU":            {changes{code(nvml.OperatingSystem)}, false, []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState("b", DefaultWindow, gpuhealth.Report{})
			var got []bool
			for i, change := range test.changes {
				at := noon.Add(time.Duration(i) * time.Minute)
				got = append(got, s.measure(sampled(change), at, func(string) bool { return test.gone }))
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

// A session that could confirm something is followed by another one soon, and any other one after the usual time.
func TestWhenSessionsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := NewWithT(t), soakMachine(t)
		sample, err := json.Marshal(nvml.Sample{Code: nvml.LibraryMismatch})
		g.Expect(err).NotTo(HaveOccurred())
		m.write("sample", string(sample))
		agent := New(Options{
			Node: "node-a", Boot: "boot-1", ProcRoot: t.TempDir(), API: &writes{}, Log: slog.New(slog.DiscardHandler),
			NVML: NVML{
				Every: time.Minute, Limit: time.Hour, Confirm: 10 * time.Second, Window: DefaultWindow,
				Program: m.path("program"), Markers: m.markers(), SysRoot: m.path("sys"),
			},
		})
		_, begun := agent.begin(t.Context())
		g.Expect(begun).To(BeTrue())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); agent.watchGPUs(ctx) }()
		began := time.Now()
		for _, step := range []struct {
			at       time.Duration
			sessions int
			pause    string
			pausedBy string
		}{
			{at: time.Second, pausedBy: pausedUnknown},
			{at: 2 * time.Second, sessions: 1}, // From here on, without a pause.
			{at: 10 * time.Second, sessions: 1},
			{at: 12 * time.Second, sessions: 2},
			{at: 70 * time.Second, sessions: 2},
			{at: 72 * time.Second, sessions: 3, pause: pausedByMIG},
			{at: 140 * time.Second, sessions: 3, pausedBy: pausedByMIG},
		} {
			if step.at == 2*time.Second {
				agent.pause.set("")
			}
			time.Sleep(time.Until(began.Add(step.at)))
			synctest.Wait()
			agent.mu.Lock()
			g.Expect(agent.counted["code-18"]).To(Equal(step.sessions), "after %s", step.at)
			g.Expect(agent.pausedBy).To(Equal(step.pausedBy), "after %s", step.at)
			agent.mu.Unlock()
			if step.pause != "" {
				agent.pause.set(step.pause)
			}
		}
		cancel()
		<-done
	})
}

// What each kind of failed session says of the driver, after as many of them.
func TestWhatFailedSessionsSay(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		count int
		want  string
	}{
		"one that hangs":        {errHangs, 1, reasonHangs},
		"one that is too long":  {errTimeout, 1, ""},
		"two that are too long": {errTimeout, 2, reasonHangs},
		"two without a driver":  {errSilent, 2, reasonHangs},
		"two that fail":         {io.EOF, 2, ""},
		"three that fail":       {io.EOF, 3, reasonFails},
		"five that are stopped": {errStopped, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			agent := New(Options{Node: "node-a", Log: slog.New(slog.DiscardHandler)})
			agent.state = newState("b", DefaultWindow, gpuhealth.Report{})
			for range test.count {
				g.Expect(agent.take(nvml.Sample{}, test.err, noon)).To(BeFalse())
			}
			reason := ""
			for _, note := range agent.state.report().Notes {
				reason += note.Reason
			}
			g.Expect(reason).To(Equal(test.want))
			g.Expect(agent.counted).To(Equal(map[string]int{outcomeOf(nvml.Sample{}, test.err): test.count}))
			g.Expect(agent.changed).To(Receive())
		})
	}
}

// What a session has shown does not count if the driver was taken away meanwhile.
func TestADriverThatIsTakenAway(t *testing.T) {
	m := soakMachine(t)
	m.write("sample", "{}")
	m.write("program", "#!/bin/sh\nrm '"+m.path("validations/driver-ready")+"'\nexec cat '"+m.path("sample")+"'\n")
	m.Expect(os.Chmod(m.path("program"), 0o755)).To(Succeed())
	m.agent = New(Options{Node: "node-a", ProcRoot: m.path("proc"), Log: slog.New(slog.DiscardHandler), NVML: NVML{
		Limit: time.Minute, Program: m.path("program"), Markers: m.markers(), SysRoot: m.path("sys"),
	}})
	m.agent.state = newState("boot-1", DefaultWindow, gpuhealth.Report{})
	m.agent.pause.set("")
	for _, pausedBy := range []string{"", pausedByDriver} {
		m.Expect(m.agent.runSession(t.Context())).To(BeFalse())
		m.Expect(m.agent.pausedBy).To(Equal(pausedBy))
		m.Expect(m.agent.counted).To(Equal(map[string]int{"stopped": 1}))
	}
}

func TestOutcomes(t *testing.T) {
	for want, test := range map[string]struct {
		code nvml.Code
		err  error
	}{
		"ok": {}, "code-25": {code: nvml.ArgumentVersion}, "failed": {err: io.EOF}, "stopped": {err: errStopped},
		"timeout": {err: errTimeout}, "hangs": {err: errHangs},
	} {
		NewWithT(t).Expect(outcomeOf(nvml.Sample{Code: test.code}, test.err)).To(Equal(want))
	}
	NewWithT(t).Expect(outcomeOf(nvml.Sample{}, errSilent)).To(Equal("timeout"))
}

// All metrics of one GPU.
func TestMetricsOfAGPU(t *testing.T) {
	g := NewWithT(t)
	m := &machine{WithT: g, t: t, agent: New(Options{Node: "node-a"})}
	g.Expect(m.metrics()).To(HaveLen(3), "before the Node has been read")
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	m.agent.state, m.agent.lost, m.agent.writes, m.agent.lastSession = s, 4, 5, 1500*time.Millisecond
	full := func(_ *nvml.Sample, g *nvml.GPU) {
		g.Uncorrected, g.SRAMExceeded, g.Action = new(uint64(7)), new(true), new(nvml.ActionRecoverFabric)
		g.Remap = &nvml.Remap{Correctable: 2, Uncorrectable: 3, Pending: true, Failed: true}
		g.Link = &nvml.Link{Width: 8, MaxWidth: 16, Generation: 3, MaxGeneration: 5}
		g.NVLinks = &nvml.NVLinks{Up: 17, Down: 1}
	}
	for i, change := range []func(*nvml.Sample, *nvml.GPU){nil, hot, full} {
		s.measure(sampled(change), noon.Add(time.Duration(i)*time.Minute), func(string) bool { return false })
		if i == 0 {
			g.Expect(m.metrics()).NotTo(ContainElement(HavePrefix("gpu_throttled_ratio")), "after one session")
		}
	}
	s.driver.note(reasonHangs, noon)
	g.Expect(m.metrics()).To(ConsistOf(
		"gpu_ecc_uncorrected{pci="+gpuA+"} 7",
		"gpu_sram_threshold_exceeded{pci="+gpuA+"} 1",
		"gpu_recovery_action{pci="+gpuA+"} 5",
		"gpu_remapped_rows{kind=correctable,pci="+gpuA+"} 2",
		"gpu_remapped_rows{kind=uncorrectable,pci="+gpuA+"} 3",
		"gpu_row_remap_pending{pci="+gpuA+"} 1",
		"gpu_row_remap_failed{pci="+gpuA+"} 1",
		"gpu_pcie_link_width{pci="+gpuA+"} 8",
		"gpu_pcie_link_width_max{pci="+gpuA+"} 16",
		"gpu_pcie_link_generation{pci="+gpuA+"} 3",
		"gpu_pcie_link_generation_max{pci="+gpuA+"} 5",
		"gpu_nvlinks{pci="+gpuA+",state=up} 17",
		"gpu_nvlinks{pci="+gpuA+",state=down} 1",
		"gpu_throttled_ratio{pci="+gpuA+"} 0.5",
		"gpu_unhealthy{class=Reset,pci="+gpuA+",reason=GPUMemoryRemapFailed} 1",
		"gpu_watched{pci="+gpuA+",reason=GPUMemoryRemapPending} 1",
		"gpu_watched{pci="+gpuA+",reason=GPUMemoryDegrading} 1",
		"nvml_gpus{} 1",
		"nvml_problem{reason=NVMLHangs} 1",
		"nvml_session_seconds{} 1.5",
		"kernel_log_gaps_total{} 4",
		"gpu_health_writes_total{} 5",
	))
	g.Expect([]string{classOf("79"), classOf("154"), classOf(otherNumbers)}).To(Equal([]string{"Reboot", "", ""}))
}

// The kernel overwrites what is not read in time, and a line may be longer than a record.
func TestTheKernelLogHasGaps(t *testing.T) {
	g := NewWithT(t)
	agent := New(Options{Node: "node-a", Boot: "boot-1", Booted: noon, API: &writes{}})
	_, begun := agent.begin(t.Context())
	g.Expect(begun).To(BeTrue())
	err := agent.takeRecords(io.MultiReader(&once{err: syscall.EPIPE}, strings.NewReader(
		strings.Repeat("x", 2*maxRecord)+"\n"+recordOf(7, a(time.Minute, 79)))))
	g.Expect(err).To(MatchError("the kernel log cannot be read: EOF"))
	g.Expect(agent.lost).To(Equal(1))
	g.Expect(agent.changed).To(Receive())
	g.Expect(agent.state.sequence).To(Equal(uint64(7)))
	g.Expect(agent.state.devices[gpuA].fault.Since).To(Equal(noon.Add(time.Minute)))
	found, is := parseRecord("8,2,6;second\r\n")
	g.Expect(is).To(BeTrue())
	g.Expect(found).To(Equal(record{sequence: 2, at: 6 * time.Microsecond, text: "second"}))
}

// once fails once, and is at its end then.
type once struct{ err error }

func (o *once) Read([]byte) (int, error) {
	err := o.err
	o.err = io.EOF
	return 0, err
}

func TestUUIDsAreAdded(t *testing.T) {
	g := NewWithT(t)
	n := &names{procRoot: t.TempDir(), known: map[string]string{}}
	n.learn(gpuA, "GPU-0b2a")
	n.learn(gpuB, "unknown")
	report := gpuhealth.Report{
		Faults: []gpuhealth.Fault{{PCI: gpuA}, {PCI: gpuB}, {PCI: gpuA, SXid: 1}, {PCI: gpuA, UUID: "GPU-1"}},
		Notes:  []gpuhealth.Note{{PCI: gpuA}, {}, {PCI: gpuA, UUID: "GPU-1"}},
		Past:   []gpuhealth.Past{{PCI: gpuA}, {PCI: gpuA, UUID: "GPU-1"}},
	}
	n.complete(&report)
	g.Expect(report).To(Equal(gpuhealth.Report{
		Faults: []gpuhealth.Fault{
			{PCI: gpuA, UUID: "GPU-0b2a"}, {PCI: gpuB}, {PCI: gpuA, SXid: 1}, {PCI: gpuA, UUID: "GPU-1"},
		},
		Notes: []gpuhealth.Note{{PCI: gpuA, UUID: "GPU-0b2a"}, {}, {PCI: gpuA, UUID: "GPU-1"}},
		Past:  []gpuhealth.Past{{PCI: gpuA, UUID: "GPU-0b2a"}, {PCI: gpuA, UUID: "GPU-1"}},
	}))
	g.Expect(n.asking).To(BeFalse())
}

func TestWhenAReportIsDue(t *testing.T) {
	g := NewWithT(t)
	const interval, urgent = time.Minute, 15 * time.Second
	lost := gpuhealth.Report{Boot: "b", Faults: []gpuhealth.Fault{{PCI: gpuA, Class: gpuhealth.Reboot}}}
	noted := gpuhealth.Report{Boot: "b", Faults: lost.Faults, Notes: []gpuhealth.Note{{PCI: gpuA}}}
	healthy := gpuhealth.Report{Boot: "b"}
	for name, test := range map[string]struct {
		last   written
		report gpuhealth.Report
		want   time.Duration
	}{
		"worse after a quiet one":             {written{report: healthy, quiet: true}, lost, urgent},
		"worse after another one":             {written{report: healthy}, lost, interval},
		"worse, with a note":                  {written{report: healthy, quiet: true}, noted, interval},
		"better":                              {written{report: lost, quiet: true}, healthy, interval},
		"the first of a boot":                 {written{quiet: true}, healthy, urgent},
		"one that the API server has refused": {written{report: lost, failed: true}, healthy, urgent},
	} {
		test.last.tried = noon
		g.Expect(test.last.due(test.report, interval, urgent)).To(Equal(noon.Add(test.want)), name)
	}
	for name, test := range map[string]struct {
		report gpuhealth.Report
		after  time.Duration
		quiet  bool
	}{
		"the same, at its time": {lost, interval, true}, "the same, earlier": {lost, interval - 1, false},
		"other faults": {healthy, interval, false}, "other notes": {noted, interval, false},
	} {
		last := written{report: lost, tried: noon, failed: true}
		last.noteAttempt(test.report, noon.Add(test.after), interval)
		g.Expect(last).To(Equal(written{report: lost, tried: noon.Add(test.after), quiet: test.quiet}), name)
	}
	g.Expect(earlier(time.Time{}, noon)).To(Equal(noon))
	g.Expect(earlier(noon, noon.Add(1))).To(Equal(noon))
	g.Expect(earlier(noon.Add(1), noon)).To(Equal(noon))
	g.Expect(same(lost, gpuhealth.Report{Boot: "b", Sequence: 3, Faults: lost.Faults})).To(BeTrue())
	g.Expect(same(lost, healthy)).To(BeFalse())
}

// The agent looks again when its report changes by itself, when a write is allowed, or soon after one that has failed.
func TestWhenTheAgentLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, api, booted := NewWithT(t), &writes{}, time.Now()
		agent := New(Options{
			Node: "node-a", Boot: "boot-1", Booted: booted, ProcRoot: t.TempDir(), API: api, Interval: 2 * time.Minute,
			Urgent: 15 * time.Second, Log: slog.New(slog.DiscardHandler),
		})
		_, begun := agent.begin(t.Context())
		g.Expect(begun).To(BeTrue())
		g.Expect(agent.takeRecords(strings.NewReader(recordOf(1, a(0, 45))))).NotTo(Succeed())
		var last written
		for i := range 3 {
			due, err := agent.write(t.Context(), &last)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(due).To(BeTemporally("==", booted.Add(time.Minute)))
			g.Expect(api.at).To(HaveLen(1))
			agent.removed = i == 1 // Then it is not written again at once.
		}
		time.Sleep(2 * time.Minute)
		due, err := agent.write(t.Context(), &last)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(due).To(BeZero())
		g.Expect(api.at).To(HaveLen(2))
		g.Expect(api.last).To(ContainSubstring("GPUChannelsTornDown"))

		g.Expect(agent.takeRecords(strings.NewReader(recordOf(2, b(0, 79))))).NotTo(Succeed())
		due, err = agent.write(t.Context(), &last)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(due).To(BeTemporally("==", time.Now().Add(2*time.Minute)))
		time.Sleep(2 * time.Minute)
		api.failing = 1
		due, err = agent.write(t.Context(), &last)
		g.Expect(err).To(MatchError("write the annotation " + labels.GPUHealth + ": the API server is being replaced"))
		g.Expect(due).To(BeTemporally("==", time.Now().Add(15*time.Second)))
		g.Expect(agent.writes).To(Equal(3))
	})
}

// A program that has no result says why, and has nothing of the environment of the agent.
func TestSessionsWithoutAResult(t *testing.T) {
	m := &machine{WithT: NewWithT(t), t: t, dir: t.TempDir()}
	t.Setenv("LD_PRELOAD_OF_AGENT", "x")
	s := newSessions(m.path("program"), time.Minute)
	program := func(text string) (nvml.Sample, error) {
		m.write("program", "#!/bin/sh\n"+text+"\n")
		m.Expect(os.Chmod(m.path("program"), 0o755)).To(Succeed())
		return s.run(t.Context(), "nvml", "--root=/x")
	}
	_, err := program("echo ' broken ' >&2; exit 3")
	m.Expect(err).To(MatchError(s.program + ` fails: exit status 3 (output: "broken")`))
	_, err = program("echo x")
	m.Expect(err).To(MatchError(HavePrefix(s.program + " has written no result: ")))
	found, err := program(`test "$*" = "nvml --root=/x" && test -z "$LD_PRELOAD_OF_AGENT" && test "$LC_ALL" = C || exit 1
test "$PATH" = /usr/sbin:/usr/bin:/sbin:/bin && echo '{"count":4}'`)
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(found).To(Equal(nvml.Sample{Count: 4}))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.run(ended)
	m.Expect(err).To(MatchError(errStopped))
	s.hung.Store(true)
	_, err = s.run(t.Context())
	m.Expect(err).To(MatchError(errHangs))
}

// Where the driver is, by its marker.
func TestTheRootOfTheDriver(t *testing.T) {
	m := &machine{WithT: NewWithT(t), t: t, dir: t.TempDir(), boot: "boot-1"}
	m.agent = New(Options{NVML: NVML{Markers: m.markers()}})
	_, err := m.agent.driverRoot()
	m.Expect(err).To(MatchError(ContainSubstring("driver-ready is missing")))
	m.driverReady()
	root, err := m.agent.driverRoot()
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(root).To(Equal(m.path("root")))
	m.Expect(m.markers().Write(labels.MarkerDriver, []marker.Assignment{
		{Key: labels.DriverRootMountKey, Value: "root"}, {Key: labels.DriverRootKey, Value: "/"},
	}, "")).To(Succeed())
	_, err = m.agent.driverRoot()
	m.Expect(err).To(MatchError("the marker of the driver has no " + labels.DriverRootMountKey))
}

// Sessions ask for the GPUs that the driver is bound to, without those that it was loaded without, and for those that
// have answered and have left the bus.
func TestWhichGPUsAreAsked(t *testing.T) {
	const out, in, unbound, never = "0000:0a:00.0", "0000:06:00.0", "0000:0b:00.0", "0000:0c:00.0"
	m := &machine{WithT: NewWithT(t), t: t, dir: t.TempDir()}
	m.agent = New(Options{ProcRoot: m.path("proc"), NVML: NVML{SysRoot: m.path("sys")}})
	m.agent.state = newState("b", DefaultWindow, gpuhealth.Report{})
	for _, address := range []string{gpu0, gpu1, in} {
		m.plug(address, "\xde\x10\x00\x23")
		m.write("proc/driver/nvidia/gpus/"+address+"/information", "Model: \t x\nGPU Excluded:\t No\n")
	}
	m.write("proc/driver/nvidia/gpus/"+gpu1+"/information", "Model: \t x\nGPU Excluded:\t Yes\n")
	m.write("sys/bus/pci/devices/"+unbound+"/config", "\xde\x10\x00\x23")
	for _, address := range []string{out, in, unbound, never} {
		m.agent.state.ensureDevice(address, false)
		if address != never {
			m.agent.state.devices[address].nvml.at = noon
		}
	}
	asked, err := m.agent.addresses()
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(asked).To(Equal([]string{in, gpu0, out}))
	m.Expect(os.RemoveAll(m.path("sys/bus/pci/devices"))).To(Succeed())
	m.write("sys/bus/pci/devices", "")
	_, err = m.agent.addresses()
	m.Expect(err).To(HaveOccurred())
}

// A device is gone if the bus does not know it, or it answers with ones alone; a file that says nothing is no sign.
func TestWhatIsGone(t *testing.T) {
	m := &machine{WithT: NewWithT(t), t: t, dir: t.TempDir()}
	m.agent = New(Options{NVML: NVML{SysRoot: m.path("sys")}})
	m.Expect(m.agent.isGone(gpu0)).To(BeTrue())
	for config, gone := range map[string]bool{"\xde\x10\x00\x23": false, "\xff\xff\xff\xff": true, "": false} {
		m.plug(gpu0, config)
		m.Expect(m.agent.isGone(gpu0)).To(Equal(gone), "%x", config)
	}
}
