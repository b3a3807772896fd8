package health

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const healthy = "True GPUsHealthy"

// unhealthy is the condition of one fault, whose time is not compared.
func unhealthy(reason, what, cause string) string {
	return "False " + reason + ": GPU-10111213-1415-1617-1819-1a1b1c1d1e00 (" + gpu0 + ") " + what + " since T, " + cause
}

const (
	needsReset, needsReboot, needsPerson = "needs a reset", "needs a reboot of the node", "needs a person"
	named0                               = "GPU-10111213-1415-1617-1819-1a1b1c1d1e00 (" + gpu0 + ")"
)

// tableCase is one fault, and what users see of it.
type tableCase struct {
	name string
	// change is a change of the options of the agent.
	change func(*Options)
	// before and then are what happens before the agent starts, and while it runs.
	before, then func(m *machine)
	condition    string
	event        string
	metric       string
}

// watched is the metric of a reason to watch the first GPU.
func watchedMetric(reason string) string {
	return "gpu_watched{pci=" + gpu0 + ",reason=" + reason + "} 1"
}

func unhealthyMetric(class, reason string) string {
	return "gpu_unhealthy{class=" + class + ",pci=" + gpu0 + ",reason=" + reason + "} 1"
}

func xidMetric(class, number string) string {
	return "gpu_xid_total{class=" + class + ",pci=" + gpu0 + ",xid=" + number + "} 1"
}

func logs(lines ...line) func(*machine) { return func(m *machine) { m.kernel(lines...) } }

func words(text string) func(*machine) { return func(m *machine) { m.nvml(text) } }

func problem(reason string) string { return "nvml_problem{reason=" + reason + "} 1" }

// fault is a case of one error in the kernel log, or of words of NVML, that makes the first GPU unhealthy.
func faultCase(name string, then func(*machine), class, reason, what, cause string) tableCase {
	return tableCase{
		name: name, then: then, condition: unhealthy(reason, what, cause), event: reason,
		metric: unhealthyMetric(class, reason),
	}
}

func ofKernelLog() []tableCase {
	one := func(number int) func(*machine) { return logs(xidOf(gpu0, number)) }
	return []tableCase{
		{name: "Xid 13, an error of a program", then: one(13), condition: healthy,
			event: "GPUApplicationError: GPUApplicationError: " + named0 + ", Xid 13", metric: xidMetric("App", "13")},
		{name: "Xid 45 alone", then: func(m *machine) {
			m.kernel(xidOf(gpu0, 45))
		}, condition: healthy, event: "GPUChannelsTornDown: GPUChannelsTornDown: " + named0 + ", Xid 45",
			metric: watchedMetric("GPUChannelsTornDown"),
			change: func(o *Options) { o.Booted = time.Now().Add(-2 * time.Minute) }},
		{name: "Xid 94, a contained error", then: one(94), condition: healthy,
			event:  "GPUMemoryErrorContained: GPUMemoryErrorContained: " + named0 + ", Xid 94",
			metric: watchedMetric("GPUMemoryErrorContained")},
		{name: "Xid 999, an unknown number", then: one(999), condition: healthy, metric: xidMetric("Watch", "999")},
		{name: "Xid 151, the platform", then: one(151), condition: healthy,
			event:  "GPUPlatformError: GPUPlatformError: " + named0 + ", Xid 151",
			metric: xidMetric("Infra", "151")},
		faultCase("Xid 48, an uncorrectable error", one(48), "Reset", "GPUUncorrectableECC", needsReset, "Xid 48"),
		faultCase("Xid 64, a failed row remap", one(64), "Reset", "GPUMemoryRemapFailed", needsReset, "Xid 64"),
		faultCase("Xid 95, an uncontained error", one(95), "Reset", "GPUMemoryErrorUncontained", needsReset, "Xid 95"),
		faultCase("Xid 119, the firmware", one(119), "Reset", "GPUFirmwareTimeout", needsReset, "Xid 119"),
		faultCase("Xid 74, an NVLink", one(74), "Reset", "NVLinkError", needsReset, "Xid 74"),
		faultCase("Xid 79, a lost GPU", one(79), "Reboot", "GPULost", "lost", "Xid 79"),
		faultCase("Xid 54, no power", one(54), "Hardware", "GPUPowerCableMissing", needsPerson, "Xid 54"),
		faultCase("Xid 154, announced reboot", logs(line{text: of(gpu0, 154,
			"GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")}),
			"Reboot", "NodeRebootRequired", needsReboot, "Xid 154"),
		{name: "a storm of errors of programs", then: func(m *machine) {
			for range 2_000 {
				m.kernel(xidOf(gpu0, 31))
			}
		}, condition: healthy, event: "GPUApplicationError: GPUApplicationError: " + named0 + ", Xid 31",
			metric: "gpu_xid_total{class=App,pci=" + gpu0 + ",xid=31} 2000"},
	}
}

func ofMemory() []tableCase {
	return []tableCase{
		{name: "a pending row remap after a boot", then: words("remap.pending@0=1"), condition: healthy,
			event:  "GPUMemoryRemapPending: GPUMemoryRemapPending: " + named0,
			metric: watchedMetric("GPUMemoryRemapPending")},
		{name: "a pending row remap that a reset has ended", then: func(m *machine) {
			m.nvml("remap.pending@0=1")
			m.Eventually(m.metrics, patience).Should(ContainElement(watchedMetric("GPUMemoryRemapPending")))
			m.nvml("")
		}, condition: healthy, metric: "gpu_row_remap_pending{pci=" + gpu0 + "} 0"},
		faultCase("a failed row remap", words("remap.failed@0=1"), "Reset", "GPUMemoryRemapFailed", needsReset,
			"NVML: a row could not be remapped"),
		faultCase("a failed row remap that a boot has not ended", func(m *machine) {
			m.nvml("remap.failed@0=1")
			m.Eventually(m.condition, patience).Should(ContainSubstring(needsReset))
			m.reboot()
		}, "Hardware", "GPUMemoryRemapFailed", needsPerson, "NVML: a row could not be remapped"),
		faultCase("a failed row remap that a reset has not ended", func(m *machine) {
			m.nvml("remap.failed@0=1")
			m.Eventually(m.condition, patience).Should(ContainSubstring(needsReset))
			m.kernel(hasBeenReset(gpu0))
		}, "Hardware", "GPUMemoryRemapFailed", needsPerson, "NVML: a row could not be remapped"),
		{name: "the threshold of the SRAM", then: words("sram@0"), condition: healthy,
			event: "GPUMemoryDegrading: GPUMemoryDegrading: " + named0, metric: watchedMetric("GPUMemoryDegrading")},
		faultCase("an uncorrectable error beyond the threshold of the SRAM", func(m *machine) {
			m.kernel(xidOf(gpu0, 48))
			m.nvml("sram@0 uncorrected@0=1")
		}, "Hardware", "GPUUncorrectableECC", needsPerson, "Xid 48"),
		{name: "uncorrected errors that the driver has handled", then: words("uncorrected@0=3"), condition: healthy,
			metric: "gpu_ecc_uncorrected{pci=" + gpu0 + "} 3"},
	}
}

func ofActions() []tableCase {
	return []tableCase{
		faultCase("recovery action 1", words("action@0=1"), "Reset", "GPUResetRequired", needsReset,
			"NVML: recovery action 1"),
		faultCase("recovery action 2", words("action@0=2"), "Reboot", "NodeRebootRequired", needsReboot,
			"NVML: recovery action 2"),
		faultCase("recovery action 3", words("action@0=3"), "Reset", "GPUDrainPeersRequired", needsReset,
			"NVML: recovery action 3"),
		{name: "recovery action 5, of the fabric", then: words("action@0=5"), condition: healthy,
			event:  "FabricDomainRecoveryRequired: FabricDomainRecoveryRequired: " + named0,
			metric: "gpu_recovery_action{pci=" + gpu0 + "} 5"},
		faultCase("a recovery action above the class of the Xid", func(m *machine) {
			m.kernel(xidOf(gpu0, 62))
			m.Eventually(m.condition, patience).Should(ContainSubstring(needsReset))
			m.nvml("action@0=2")
		}, "Reboot", "GPUResetRequired", needsReboot, "Xid 62"),
		faultCase("a recovery action that falls", func(m *machine) {
			m.nvml("action@0=2")
			m.Eventually(m.condition, patience).Should(ContainSubstring(needsReboot))
			m.nvml("action@0=1")
		}, "Reset", "NodeRebootRequired", needsReset, "NVML: recovery action 2"),
		{name: "recovery: the action has ended", then: func(m *machine) {
			m.kernel(xidOf(gpu0, 48))
			m.nvml("action@0=1")
			m.Eventually(m.metrics, patience).Should(ContainElement("gpu_recovery_action{pci=" + gpu0 + "} 1"))
			m.Eventually(m.condition, patience).Should(ContainSubstring("Xid 48"))
			m.nvml("")
		}, condition: healthy, metric: "gpu_recovery_action{pci=" + gpu0 + "} 0"},
		faultCase("no recovery: the driver has never announced an action", func(m *machine) {
			m.kernel(xidOf(gpu0, 48))
			m.Eventually(m.condition, patience).Should(ContainSubstring("Xid 48"))
			m.awaitSessions("ok", 3)
		}, "Reset", "GPUUncorrectableECC", needsReset, "Xid 48"),
		{name: "recovery: a reset was seen", then: func(m *machine) {
			m.kernel(xidOf(gpu0, 48))
			m.Eventually(m.condition, patience).Should(ContainSubstring("Xid 48"))
			m.kernel(hasBeenReset(gpu0))
		}, condition: healthy, metric: xidMetric("Reset", "48")},
		faultCase("no recovery: the reset has not helped", func(m *machine) {
			m.nvml("action@0=1")
			m.Eventually(m.condition, patience).Should(ContainSubstring(needsReset))
			m.kernel(hasBeenReset(gpu0))
			m.awaitSessions("ok", 3)
		}, "Reset", "GPUResetRequired", needsReset, "NVML: recovery action 1"),
	}
}

func ofLoss() []tableCase {
	dead := func(m *machine) {
		m.nvml("nvmlDeviceGetHandleByPciBusId_v2@0=15")
		m.plug(gpu0, "\xff\xff\xff\xff")
	}
	return []tableCase{
		faultCase("a GPU that NVML and the bus have lost", func(m *machine) {
			m.awaitSessions("ok", 1)
			dead(m)
		}, "Reboot", "GPULost", "lost", "NVML: the gpu is lost"),
		faultCase("a GPU that has left the bus", func(m *machine) {
			m.awaitSessions("ok", 1)
			m.nvml("nvmlDeviceGetUUID@0=15")
			m.Expect(os.RemoveAll(m.path("sys/bus/pci/devices/" + gpu0))).To(Succeed())
		}, "Reboot", "GPULost", "lost", "NVML: the gpu is lost"),
		{name: "a GPU that NVML has lost and the bus has not", then: func(m *machine) {
			m.nvml("nvmlDeviceGetHandleByPciBusId_v2@0=15")
			m.awaitSessions("ok", 3)
		}, condition: healthy},
		faultCase("Xid 79 for the second time in some days", func(m *machine) {
			m.kernel(xidOf(gpu0, 79))
			m.Eventually(m.condition, patience).Should(ContainSubstring("lost"))
			m.reboot()
			m.Eventually(m.condition, patience).Should(Equal(healthy))
			m.kernel(xidOf(gpu0, 79))
		}, "Hardware", "GPULost", "lost", "Xid 79"),
		{name: "a GPU that NVML does not know", then: func(m *machine) { m.write("root/lib/FAKE_GPUS", "gpu") },
			condition: healthy,
			event:     "GPUCountMismatch: GPUCountMismatch: GPU-20212223-2425-2627-2829-2a2b2c2d2e00 (" + gpu1 + ")",
			metric:    "gpu_watched{pci=" + gpu1 + ",reason=GPUCountMismatch} 1"},
		faultCase("code 16", words("nvmlDeviceGetUUID@0=16"), "Reset", "GPUResetRequired", needsReset,
			"NVML: the gpu requires a reset"),
		faultCase("code 14", words("nvmlDeviceGetFieldValues@0=14"), "Hardware", "GPUInfoROMCorrupted", needsPerson,
			"NVML: the inforom is corrupted"),
		faultCase("code 8", words("nvmlDeviceGetFieldValues@0=8"), "Hardware", "GPUPowerCableMissing", needsPerson,
			"NVML: the power is insufficient"),
	}
}

func ofDriver() []tableCase {
	var cases []tableCase
	for code, what := range map[string]string{
		"3": "not supported", "13": "no such function", "17": "the operating system", "18": "mismatch",
		"25": "struct version", "999": "unknown",
	} {
		cases = append(cases, tableCase{name: "code " + code + " for one GPU, " + what, then: func(m *machine) {
			m.nvml("nvmlDeviceGetUUID@0=" + code + " nvmlDeviceGetFieldValues@0=" + code +
				" nvmlDeviceGetHandleByPciBusId_v2@1=" + code)
			m.awaitSessions("ok", 4)
		}, condition: healthy, metric: "nvml_gpus{} 2"})
	}
	infra := func(name, words, reason string) tableCase {
		return tableCase{name: name, then: func(m *machine) { m.nvml(words) }, condition: healthy,
			event: reason + ": " + reason + ": the driver of the node", metric: problem(reason)}
	}
	return append(cases,
		infra("code 18, the driver was replaced", "nvmlInit_v2=18", "DriverLibraryMismatch"),
		infra("code 9, no driver", "nvmlInit_v2=9", "DriverNotLoaded"),
		infra("code 17 for all", "nvmlInit_v2=17", "NVMLAccessLost"),
		infra("code 999 for each GPU", "nvmlDeviceGetHandleByPciBusId_v2=999", "NVMLAccessLost"),
		tableCase{name: "code 18 that has ended", then: func(m *machine) {
			m.nvml("nvmlInit_v2=18")
			m.Eventually(m.metrics, patience).Should(ContainElement(problem("DriverLibraryMismatch")))
			m.nvml("")
		}, condition: healthy, metric: "nvml_gpus{} 2"},
		tableCase{name: "no library", then: func(m *machine) {
			m.Expect(os.WriteFile(m.path("root/lib/libnvidia-ml.so.1"), []byte("x"), 0o600)).To(Succeed())
		}, before: func(m *machine) { m.nvml("") }, condition: healthy,
			event: "NVMLNotFound: NVMLNotFound: the driver of the node", metric: problem("NVMLNotFound")},
		tableCase{name: "NVML hangs", then: words("hang:nvmlDeviceGetUUID"), condition: healthy,
			change: func(o *Options) { o.NVML.Limit = 2 * time.Second },
			event:  "NVMLHangs: NVMLHangs: the driver of the node", metric: problem("NVMLHangs")},
		infra("NVML crashes", "crash:nvmlDeviceGetUUID", "NVMLFails"),
		infra("an unknown code for all", "nvmlInit_v2=25", "NVMLFails"),
		tableCase{name: "NVML that has crashed", then: func(m *machine) {
			m.nvml("crash:nvmlDeviceGetUUID")
			m.Eventually(m.metrics, patience).Should(ContainElement(problem("NVMLFails")))
			m.nvml("")
		}, condition: healthy, metric: "nvml_gpus{} 2"},
		tableCase{name: "the driver is not ready", before: func(m *machine) {
			m.nvml("action=2")
			m.Expect(os.Remove(m.path("validations/driver-ready"))).To(Succeed())
		}, condition: healthy, metric: "nvml_paused{reason=driver-not-ready} 1"},
	)
}

func ofLinks() []tableCase {
	return []tableCase{
		{name: "a narrow PCIe link", then: words("width@0=8"), condition: healthy,
			event: "PCIeLinkDegraded: PCIeLinkDegraded: " + named0, metric: watchedMetric("PCIeLinkDegraded")},
		{name: "a PCIe link that is wide again", then: func(m *machine) {
			m.nvml("width@0=8")
			m.Eventually(m.metrics, patience).Should(ContainElement(watchedMetric("PCIeLinkDegraded")))
			m.nvml("")
		}, condition: healthy, metric: "gpu_pcie_link_width{pci=" + gpu0 + "} 16"},
		{name: "a slow PCIe link of an idle GPU", then: func(m *machine) {
			m.nvml("generation=1")
			m.awaitSessions("ok", 20)
		}, condition: healthy, metric: "gpu_pcie_link_generation{pci=" + gpu0 + "} 1"},
		{name: "heat", then: words("throttle@0=0x40 heat.nanos=-1"), condition: healthy,
			event: "GPUThrottled: GPUThrottled: " + named0, metric: watchedMetric("GPUThrottled")},
		{name: "an idle GPU", then: func(m *machine) {
			m.nvml("throttle=0x9")
			m.awaitSessions("ok", 20)
		}, condition: healthy, metric: "gpu_throttled_ratio{pci=" + gpu0 + "} 0"},
		{name: "NVLinks that are down", then: words("nvlinks.down@0=2"), condition: healthy,
			metric: "gpu_nvlinks{pci=" + gpu0 + ",state=down} 2"},
		{name: "two GPUs", then: func(m *machine) {
			m.kernel(xidOf(gpu1, 48))
			m.nvml("action@0=2")
		}, condition: unhealthy("NodeRebootRequired", needsReboot, "NVML: recovery action 2") +
			"; GPU-20212223-2425-2627-2829-2a2b2c2d2e00 (" + gpu1 + ") needs a reset since T, Xid 48",
			event: "NodeRebootRequired", metric: unhealthyMetric("Reboot", "NodeRebootRequired")},
	}
}

// condition returns the condition without times.
func (m *machine) condition() string { return withoutTimes(m.shows().condition) }

// withoutTimes replaces each time by a T.
func withoutTimes(text string) string {
	parts := strings.Split(text, " since ")
	for i := range parts[1:] {
		_, rest, _ := strings.Cut(parts[i+1], ",")
		parts[i+1] = "T," + rest
	}
	return strings.Join(parts, " since ")
}

// The table of faults: what users see of each, with a real program that opens a stand-in of the driver's library.
func TestTableOfFaults(t *testing.T) {
	var cases []tableCase
	for _, part := range [][]tableCase{ofKernelLog(), ofMemory(), ofActions(), ofLoss(), ofDriver(), ofLinks()} {
		cases = append(cases, part...)
	}
	passed := 0
	for _, test := range cases {
		if t.Run(test.name, func(t *testing.T) { test.run(t) }) {
			passed++
		}
	}
	t.Logf("%d/%d faults have their condition, Event and metric", passed, len(cases))
}

func (c tableCase) run(t *testing.T) {
	m := newMachine(t)
	m.change = c.change
	if c.before != nil {
		c.before(m)
	}
	m.run()
	if c.then != nil {
		// The agent has learned the names of the GPUs.
		m.awaitSessions("ok", 1)
		c.then(m)
	}
	want := []string{}
	if c.event != "" {
		want = append(want, c.event)
	}
	m.Eventually(func(g Gomega) {
		found := m.shows()
		g.Expect(withoutTimes(found.condition)).To(Equal(c.condition))
		if c.event != "" || !strings.HasPrefix(c.condition, "False") {
			g.Expect(found.events).To(ContainElements(want))
		}
		if c.event == "" {
			g.Expect(found.events).To(BeEmpty())
		}
		if c.metric != "" {
			g.Expect(found.metrics).To(ContainElement(c.metric))
		}
	}, patience, "5ms").Should(Succeed())
}
