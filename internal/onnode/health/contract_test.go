package health

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
)

// While someone else needs the GPUs there is no session, and one in progress is ended at once. When the pause ends, the
// sessions go on.
func TestPauses(t *testing.T) {
	const deploy = "nvidia.com/gpu.deploy."
	for name, test := range map[string]struct {
		label, value, after string
		reason              string
	}{
		"the driver manager": {deploy + "device-plugin", "paused-for-driver-upgrade", "true", pausedByLabel},
		"the MIG manager":    {deploy + "dcgm", "paused-for-mig-change", "true", pausedByLabel},
		"any other program":  {deploy + "client", "paused-by-me", "true", pausedByLabel},
		"a MIG change":       {"nvidia.com/mig.config.state", "pending", "success", pausedByMIG},
		"a reboot for MIG":   {"nvidia.com/mig.config.state", "rebooting", "failed", pausedByMIG},
		"an upgrade":         {labels.UpgradeState, "pod-restart-required", "upgrade-done", pausedByUpgrade},
		"a failed upgrade":   {labels.UpgradeState, "upgrade-failed", "upgrade-required", pausedByUpgrade},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.label(deploy+"device-plugin", "true")
			m.run()
			m.awaitSessions("ok", 2)
			m.nvml("hang:nvmlDeviceGetUUID")
			m.Eventually(m.unload, patience).ShouldNot(Succeed(), "a session has the driver open")
			m.label(test.label, test.value)
			m.Eventually(m.unload, patience, "1ms").Should(Succeed(), "the session has ended, within its limit of a minute")
			m.nvml("")
			m.Eventually(m.metrics, patience).Should(ContainElement("nvml_paused{reason=" + test.reason + "} 1"))
			before := m.ended()
			m.label(deploy+"toolkit", "paused-by-another")
			m.Eventually(m.metrics, patience).Should(ContainElement("nvml_paused{reason=deploy-label} 1"))
			m.Expect(m.ended()).To(Equal(before), "no session while the reason changes")
			m.label(deploy+"toolkit", "true")
			m.label(test.label, test.after)
			m.awaitSessions("ok", 2)
		})
	}
}

// An agent that cannot read the labels cannot know of a pause. It begins with one read of the Node, of which the
// annotation counts alone.
func TestWithoutLabelsThereIsNoSession(t *testing.T) {
	m := newMachine(t)
	var reads atomic.Int32
	m.server.Before(func(method string) {
		if method == "GET" && reads.Add(1) == 2 {
			m.server.Refuse(503, "no API server")
		}
	})
	m.run()
	m.Eventually(m.metrics, patience).Should(ContainElement("nvml_paused{reason=labels-unknown} 1"))
	m.Eventually(reads.Load, patience).Should(BeNumerically(">", 5), "it tries again")
	m.stop()
	m.Expect(m.ended()).To(BeZero())
}

// The driver can be unloaded at any time outside a session, however many there have been.
func TestNoHandleIsOpenBetweenSessions(t *testing.T) {
	m := newMachine(t)
	m.change = func(o *Options) { o.NVML.Every = time.Hour }
	m.run()
	m.Eventually(func() int { return m.sessions("ok") }, patience).Should(Equal(1))
	m.Eventually(m.unload, patience).Should(Succeed())
	m.Expect(openFiles(m, os.Getpid())).To(BeEmpty(), "the agent itself has no file of the driver")
	m.stop()
	m.Expect(m.ended()).To(Equal(1))
}

// openFiles returns the files of the driver that the process has open.
func openFiles(m *machine, pid int) []string {
	m.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	m.Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil &&
			strings.HasPrefix(target, m.path("root")) {
			found = append(found, target)
		}
	}
	return found
}

// A program that hangs in the driver cannot be killed. It is reported, no second one is started, and the sessions go on
// once it has ended.
func TestASessionThatCannotBeKilled(t *testing.T) {
	m := newMachine(t)
	m.change = func(o *Options) { o.NVML.Limit = 2 * time.Second }
	m.nvml("hang:nvmlDeviceGetUUID")
	var hanging *os.Process
	started := make(chan *os.Process, 100)
	m.prepare = func(a *Agent) {
		a.sessions.grace = time.Millisecond
		a.sessions.kill = func(p *os.Process) error { started <- p; return nil }
	}
	m.run()
	m.Eventually(started, patience).Should(Receive(&hanging))
	m.Eventually(m.metrics, patience).Should(ContainElement(problem("NVMLHangs")))
	m.awaitSessions("hangs", 3)
	m.Expect(started).To(BeEmpty(), "one program hangs, and no other was started")
	m.Eventually(m.condition, patience).Should(Equal(healthy), "no GPU is unhealthy because of it")

	m.nvml("")
	m.Expect(hanging.Kill()).To(Succeed())
	m.awaitSessions("ok", 3)
	m.Eventually(m.metrics, patience).ShouldNot(ContainElement(problem("NVMLHangs")))
}

// The driver shows each GPU in procfs, too, and may hang there. It is asked once, and no session is begun until it has
// answered.
func TestADriverThatHangsInProcfs(t *testing.T) {
	m := newMachine(t)
	information := m.path("proc/driver/nvidia/gpus/" + gpu0 + "/information")
	m.Expect(os.MkdirAll(filepath.Dir(information), 0o755)).To(Succeed())
	m.Expect(syscall.Mkfifo(information, 0o600)).To(Succeed())
	m.run()
	m.awaitSessions("timeout", 3)
	m.Expect(m.sessions("ok")).To(BeZero())
	m.Eventually(m.metrics, patience).Should(ContainElement(problem("NVMLHangs")))
	m.Expect(m.condition()).To(Equal(healthy), "no GPU is unhealthy because of it")

	m.Expect(os.Rename(information, information+".before")).To(Succeed())
	writer, err := os.OpenFile(information+".before", os.O_RDWR, 0)
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(writer.Close()).To(Succeed())
	m.awaitSessions("ok", 2)
	m.Eventually(m.metrics, patience).ShouldNot(ContainElement(problem("NVMLHangs")))
}

// sampled is what a session of a healthy GPU shows, with a change.
func sampled(change func(*nvml.Sample, *nvml.GPU)) nvml.Sample {
	sample := nvml.Sample{Count: 1, GPUs: []nvml.GPU{{
		PCI: gpuA, UUID: "GPU-0b2a", Action: new(nvml.ActionNone), Remap: &nvml.Remap{},
		Link: &nvml.Link{Width: 16, MaxWidth: 16}, Throttle: new(uint64(1)),
	}}}
	if change != nil {
		change(&sample, &sample.GPUs[0])
	}
	return sample
}

var (
	narrow = func(_ *nvml.Sample, g *nvml.GPU) { g.Link.Width = 8 }
	hot    = func(_ *nvml.Sample, g *nvml.GPU) { *g.Throttle = nvml.ThrottleHeat }
)

// reasons plays one session a minute, and returns the reasons that are reported after each, without repetitions.
func reasons(s *state, from time.Time, changes ...func(*nvml.Sample, *nvml.GPU)) []string {
	var found []string
	for i, change := range changes {
		s.measure(sampled(change), from.Add(time.Duration(i)*time.Minute), func(string) bool { return false })
		now := ""
		for _, note := range s.report().Notes {
			now += note.Reason
		}
		for _, fault := range s.report().Faults {
			now += fault.Reason
		}
		if len(found) == 0 || found[len(found)-1] != now {
			found = append(found, now)
		}
	}
	return found
}

// mixed returns a number of sessions of which one of each is changed.
func mixed(count, each int, change func(*nvml.Sample, *nvml.GPU)) []func(*nvml.Sample, *nvml.GPU) {
	changes := make([]func(*nvml.Sample, *nvml.GPU), count)
	for i := each - 1; i < count; i += each {
		changes[i] = change
	}
	return changes
}

// What comes and goes is not reported each time: it must last, and so must its end.
func TestFlapping(t *testing.T) {
	for name, test := range map[string]struct {
		changes []func(*nvml.Sample, *nvml.GPU)
		want    []string
	}{
		"a GPU that is hot now and then":  {mixed(120, 8, hot), []string{""}},
		"a GPU that is hot half the time": {mixed(120, 2, hot), []string{"", "GPUThrottled"}},
		"a GPU that is always hot":        {mixed(30, 1, hot), []string{"", "GPUThrottled"}},
		"a GPU that has cooled down": {
			append(mixed(30, 1, hot), mixed(30, 31, nil)...), []string{"", "GPUThrottled", ""},
		},
		"a GPU that cools down slowly":    {append(mixed(30, 1, hot), mixed(60, 8, hot)...), []string{"", "GPUThrottled"}},
		"a link that is narrow for long":  {mixed(12, 1, narrow), []string{"", "PCIeLinkDegraded"}},
		"a link that is narrow for 9 min": {append(mixed(10, 1, narrow), nil, nil), []string{""}},
		"a link that flaps":               {mixed(120, 2, narrow), []string{""}},
		"a link that is wide now and then": {
			append(mixed(12, 1, narrow), nil, narrow, nil), []string{"", "PCIeLinkDegraded"},
		},
		"a link that was repaired": {
			append(mixed(12, 1, narrow), mixed(12, 13, nil)...), []string{"", "PCIeLinkDegraded", ""},
		},
		"a code that comes and goes": {
			mixed(40, 2, func(_ *nvml.Sample, g *nvml.GPU) { g.Code = nvml.ResetRequired }), []string{""},
		},
		"a code that says nothing, at times": {
			mixed(40, 2, func(s *nvml.Sample, _ *nvml.GPU) { s.Code = nvml.ArgumentVersion }), []string{""},
		},
		"a code that says nothing, always": {
			mixed(10, 1, func(s *nvml.Sample, _ *nvml.GPU) { s.Code = nvml.ArgumentVersion }), []string{"", "NVMLFails"},
		},
		"a code that says nothing, after one that does": {
			append(mixed(2, 1, func(s *nvml.Sample, _ *nvml.GPU) { s.Code = nvml.LibraryMismatch }),
				mixed(10, 1, func(s *nvml.Sample, _ *nvml.GPU) { s.Code = nvml.ArgumentVersion })...),
			[]string{"", "DriverLibraryMismatch"},
		},
		"a driver that fails at times": {
			mixed(40, 2, func(s *nvml.Sample, _ *nvml.GPU) { s.Code = nvml.Unknown }), []string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState("b", DefaultWindow, gpuhealth.Report{})
			NewWithT(t).Expect(reasons(s, noon, test.changes...)).To(Equal(test.want))
		})
	}
}

// A session that fails shows nothing: twice is no reason, and three times are one until two sessions have succeeded.
func TestSessionsThatFail(t *testing.T) {
	g := NewWithT(t)
	var d driverState
	for range 20 {
		d.fail(noon)
		d.fail(noon)
		d.take(nvml.Sample{}, noon)
	}
	g.Expect(d.notes()).To(BeEmpty())
	for range failures {
		d.fail(noon)
	}
	noted := []gpuhealth.Note{{Class: gpuhealth.Infra, Reason: reasonFails, Since: noon}}
	g.Expect(d.notes()).To(Equal(noted))
	d.fail(noon.Add(time.Hour))
	d.take(nvml.Sample{}, noon)
	g.Expect(d.notes()).To(Equal(noted))
	d.take(nvml.Sample{}, noon)
	g.Expect(d.notes()).To(BeEmpty())
}

// The counters of the driver say more than what a session happens to see.
func TestThrottlingIsMeasuredByItsCounter(t *testing.T) {
	g := NewWithT(t)
	counted := func(share float64) []string {
		var changes []func(*nvml.Sample, *nvml.GPU)
		for i := range 30 {
			changes = append(changes, func(_ *nvml.Sample, g *nvml.GPU) {
				g.ThrottledNanos = new(uint64(float64(i) * share * float64(time.Minute)))
			})
		}
		return reasons(newState("b", DefaultWindow, gpuhealth.Report{}), noon, changes...)
	}
	g.Expect(counted(0.19)).To(Equal([]string{""}))
	g.Expect(counted(0.21)).To(Equal([]string{"", "GPUThrottled"}))
}

// After a pause nothing is known of the time before.
func TestAPauseEndsTheWindows(t *testing.T) {
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	g.Expect(reasons(s, noon, mixed(9, 1, narrow)...)).To(Equal([]string{""}))
	g.Expect(reasons(s, noon.Add(time.Hour), mixed(9, 1, narrow)...)).To(Equal([]string{""}))
	g.Expect(reasons(s, noon.Add(time.Hour+9*time.Minute), mixed(3, 1, narrow)...)).To(
		Equal([]string{"", "PCIeLinkDegraded"}))
}

// Also with the longest time between two sessions, each of which takes time itself, links and throttling are measured.
func TestTheLongestIntervalIsMeasured(t *testing.T) {
	for reason, change := range map[string]func(*nvml.Sample, *nvml.GPU){
		reasonLinkDegraded: narrow, reasonThrottled: hot,
	} {
		g := NewWithT(t)
		s := newState("b", DefaultWindow, gpuhealth.Report{})
		for i := range 4 {
			began := noon.Add(time.Duration(i) * (MaxSessions + DefaultSessionLimit))
			s.measure(sampled(change), began, func(string) bool { return false })
		}
		g.Expect(s.devices[gpuA].notes).To(HaveKey(reason))
	}
}

// A session that began before the driver announced something is of no use.
func TestAnAnnouncementIsNotEndedByAnEarlierSession(t *testing.T) {
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	play(t, s, 1, []line{a(0, 48), action(0, "GPU Reset Required")})
	g.Expect(reasons(s, noon.Add(-time.Second), nil)).To(Equal([]string{"GPUUncorrectableECC"}))
	g.Expect(reasons(s, noon.Add(time.Second), nil)).To(Equal([]string{""}))
}

// An agent that was killed goes on with what it has reported, and writes nothing.
func TestAnAgentThatIsStartedAgainWritesNothing(t *testing.T) {
	m := newMachine(t)
	m.nvml("action@0=2 remap.pending@1=1")
	m.run()
	m.kernel(xidOf(gpu1, 48), xidOf(gpu0, 13))
	m.Eventually(func() int { return len(m.shows().events) }, patience).Should(Equal(2))
	m.Eventually(m.condition, patience).Should(ContainSubstring("Xid 48"))
	m.awaitSessions("ok", 3)
	patches := m.server.Patches()
	before := m.server.Annotations()
	m.stop()
	m.lines = 0
	m.run()
	m.kernel(xidOf(gpu1, 48), xidOf(gpu0, 13))
	m.awaitSessions("ok", 5)
	m.Expect(m.server.Annotations()).To(Equal(before))
	m.Expect(m.server.Patches()).To(Equal(patches))
}

// An error that accompanies another one is not noted, in whatever order they come.
func TestXid45WithAnother(t *testing.T) {
	for name, lines := range map[string][]line{
		"before": {a(0, 43), a(59*time.Second, 45)},
		"after":  {a(0, 45), a(59*time.Second, 43)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newState("b", DefaultWindow, gpuhealth.Report{})
			play(t, s, 1, lines)
			s.settle(noon.Add(time.Hour))
			g.Expect(s.devices[gpuA].notes).To(HaveLen(1))
			g.Expect(s.devices[gpuA].notes).To(HaveKey("Xid 43"))
		})
	}
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	play(t, s, 1, []line{a(0, 43), a(2*time.Minute, 45)})
	g.Expect(s.settle(noon.Add(2 * time.Minute))).To(Equal(noon.Add(3 * time.Minute)))
	g.Expect(s.settle(noon.Add(3 * time.Minute))).To(BeZero())
	g.Expect(s.devices[gpuA].notes).To(HaveKey("GPUChannelsTornDown"))
}

// Errors that are repeated more often than once a minute are noted like a single one.
func TestXid45ThatIsRepeated(t *testing.T) {
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	var lines []line
	for i := range 7 {
		lines = append(lines, a(time.Duration(i)*10*time.Second, 45))
	}
	play(t, s, 1, lines)
	g.Expect(s.devices[gpuA].notes).To(HaveKeyWithValue("GPUChannelsTornDown", HaveField("Since", noon)))
}

// A fault of more than 30 days ago does not count any more.
func TestEarlierFaultsAreForgotten(t *testing.T) {
	for days, class := range map[time.Duration]string{29: "Hardware", 31: "Reboot"} {
		g := NewWithT(t)
		first := newState("one", DefaultWindow, gpuhealth.Report{})
		play(t, first, 1, []line{a(0, 79)})
		second := newState("two", DefaultWindow, first.report())
		play(t, second, 1, []line{a(days*24*time.Hour, 79)})
		g.Expect(string(second.report().Faults[0].Class)).To(Equal(class))
		g.Expect(second.report().Past).To(HaveLen(1))
	}
}

// A lost GPU that a person has reset in vain is not lost again, but still. It is lost again if it was there meanwhile,
// or in another boot.
func TestALostGPUThatDoesNotComeBack(t *testing.T) {
	lost := func(_ *nvml.Sample, g *nvml.GPU) { *g = nvml.GPU{PCI: gpuA, Code: nvml.GPULost} }
	for name, test := range map[string]struct {
		boot    string
		between func(*nvml.Sample, *nvml.GPU)
		class   string
	}{
		"still lost":          {boot: "b", between: lost, class: "Reboot"},
		"back, and lost":      {boot: "b", class: "Hardware"},
		"lost before, and so": {boot: "before", between: lost, class: "Hardware"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reported gpuhealth.Report
			if test.boot != "b" {
				before := newState(test.boot, DefaultWindow, gpuhealth.Report{})
				play(t, before, 1, []line{a(0, 79)})
				reported = before.report()
			}
			s := newState("b", DefaultWindow, reported)
			at := noon.Add(time.Hour)
			session := func(change func(*nvml.Sample, *nvml.GPU)) {
				at = at.Add(time.Minute)
				s.measure(sampled(change), at, func(string) bool { return change != nil })
			}
			session(nil)
			session(lost)
			session(lost)
			g.Expect(s.report().Faults).To(HaveLen(1))
			play(t, s, 10, []line{reset(at.Sub(noon))})
			g.Expect(s.report().Faults).To(BeEmpty())
			session(test.between)
			session(lost)
			session(lost)
			g.Expect(s.report().Faults).To(ConsistOf(HaveField("Class", BeEquivalentTo(test.class))))
		})
	}
}

// Each reason is one of the API, so that users find its cause and its remedy.
func TestReasonsAreThoseOfTheAPI(t *testing.T) {
	declared, err := os.ReadFile("../../../api/v1/health_types.go")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	reasons := append([]string{
		reasonDegrading, reasonNotLoaded, reasonMismatch, reasonNoLibrary, reasonAccessLost, reasonHangs,
		reasonFails,
	}, measured...)
	for _, signal := range signalOfCode {
		reasons = append(reasons, signal.rule.Reason)
	}
	for _, reason := range reasons {
		NewWithT(t).Expect(strings.Contains(string(declared), "Reason"+reason+" = \""+reason+"\"")).To(BeTrue(), reason)
	}
}
