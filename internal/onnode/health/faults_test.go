package health

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

const (
	gpuA, gpuB = "0000:1b:00.0", "0000:3b:00.0"
	nvSwitch   = "0000:c1:00.0"
)

// line is one line of the kernel log.
type line struct {
	after time.Duration
	text  string
	// program: a program has written it.
	program bool
}

func of(pci string, number int, text string) string {
	return fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s", pci[:len(pci)-2], number, text)
}

func a(after time.Duration, number int) line {
	return line{after: after, text: of(gpuA, number, "pid=1, name=x, text")}
}

func b(after time.Duration, number int) line {
	return line{after: after, text: of(gpuB, number, "pid=1, name=x, text")}
}

func byProcess(after time.Duration, pid int) line {
	return line{after: after, text: of(gpuA, 13, fmt.Sprintf("pid=%d, name=x, text", pid))}
}

func action(after time.Duration, text string) line {
	return line{after: after, text: of(gpuA, 154, "GPU recovery action changed from 0x0 (None) to 0x1 ("+text+")")}
}

func reset(after time.Duration) line {
	return line{after: after, text: "gpu-operator: GPU " + gpuA + " has been reset", program: true}
}

func sxid(severity string) line {
	return line{text: "nvidia-nvswitch0: SXid (PCI:" + nvSwitch + "): 12028, " + severity + ", Link 46 egress error"}
}

// want is a fault without its time.
func want(pci string, class gpuhealth.Class, reason string, number int) string {
	return fmt.Sprintf("%s %s %s %d", pci, class, reason, number)
}

// The lines of a stand-in for the kernel log, and the faults and the watched reasons that follow from them.
func TestFaults(t *testing.T) {
	const minute, hour = time.Minute, time.Hour
	tests := map[string]struct {
		lines   []line
		want    []string
		watched []string
	}{
		"App: an error of a program":           {lines: []line{a(0, 13)}},
		"App: one program that repeats errors": {lines: []line{a(0, 31), a(minute, 31), a(hour, 31), a(2*hour, 31)}},
		"App: errors of three programs in a day": {
			lines:   []line{byProcess(0, 1), byProcess(hour, 2), byProcess(2*hour, 3)},
			watched: []string{"GPUApplicationErrors"},
		},
		"App: errors of three programs in three days": {
			lines: []line{byProcess(0, 1), byProcess(23*hour, 2), byProcess(47*hour, 3)},
		},
		"Watch: a pending row remap":               {lines: []line{a(0, 63)}, watched: []string{"GPUMemoryRemapPending"}},
		"Watch: a contained error":                 {lines: []line{a(0, 94)}, watched: []string{"GPUMemoryErrorContained"}},
		"Watch: a number that is not in the table": {lines: []line{a(0, 61), a(0, 500), a(0, 999)}},
		"Watch: one context switch timeout":        {lines: []line{a(0, 109), a(minute, 109)}},
		"Watch: power smoothing that engages again": {
			lines: []line{a(0, 163), a(minute, 162)},
		},
		"Watch: power smoothing that stays disengaged": {
			lines: []line{a(0, 162), a(minute, 163)}, watched: []string{"GPUReducedCapability"},
		},
		"Reset: two context switch timeouts in 10 minutes": {
			lines: []line{a(0, 109), a(5*minute, 109)},
			want:  []string{want(gpuA, "Reset", "GPUResetRequired", 109)},
		},
		"Reset: an uncorrectable error": {
			lines: []line{a(0, 48)}, want: []string{want(gpuA, "Reset", "GPUUncorrectableECC", 48)},
		},
		"Reset: a failed row remap": {
			lines: []line{a(0, 64)}, want: []string{want(gpuA, "Reset", "GPUMemoryRemapFailed", 64)},
		},
		"Reset: the firmware does not answer": {
			lines: []line{a(0, 119)}, want: []string{want(gpuA, "Reset", "GPUFirmwareTimeout", 119)},
		},
		"Reset: the first of several faults stays": {
			lines: []line{a(0, 95), a(minute, 62), a(hour, 95)},
			want:  []string{want(gpuA, "Reset", "GPUMemoryErrorUncontained", 95)},
		},
		"Reboot: a lost GPU": {lines: []line{a(0, 79)}, want: []string{want(gpuA, "Reboot", "GPULost", 79)}},
		"Reboot: a worse fault replaces another": {
			lines: []line{a(0, 119), a(minute, 79)}, want: []string{want(gpuA, "Reboot", "GPULost", 79)},
		},
		"Reboot: a lesser fault does not": {
			lines: []line{a(0, 79), a(minute, 119)}, want: []string{want(gpuA, "Reboot", "GPULost", 79)},
		},
		"Hardware: no power": {lines: []line{a(0, 54)}, want: []string{want(gpuA, "Hardware", "GPUPowerCableMissing", 54)}},
		"Hardware: NVLink errors in one burst": {
			lines: []line{a(0, 74), a(time.Second, 74), a(2*time.Second, 74)},
			want:  []string{want(gpuA, "Reset", "NVLinkError", 74)},
		},
		"Hardware: NVLink errors that are repeated": {
			lines: []line{a(0, 74), a(hour, 74), a(2*hour, 74)},
			want:  []string{want(gpuA, "Hardware", "NVLinkError", 74)},
		},
		"Hardware: corrected errors that are repeated": {
			lines: []line{a(0, 92), a(hour, 92), a(2*hour, 92)}, watched: []string{"GPUMemoryDegrading"},
			want: []string{want(gpuA, "Hardware", "GPUMemoryDegrading", 92)},
		},
		"Infra: a platform error": {lines: []line{a(0, 151)}},
		"SXid: a fatal error": {
			lines: []line{sxid("Fatal")}, want: []string{want(nvSwitch, "Reset", "NVSwitchFatalError", 12028)},
		},
		"SXid: another error": {lines: []line{sxid("Non-fatal"), sxid("Data {0x1}")}},
		"154 announces a reset because of an error that is watched": {
			lines:   []line{a(0, 94), action(time.Second, "GPU Reset Required")},
			want:    []string{want(gpuA, "Reset", "GPUResetRequired", 94)},
			watched: []string{"GPUMemoryErrorContained"},
		},
		"154 announces a reset long after an error": {
			lines: []line{a(0, 13), action(hour, "Drain and Reset")},
			want:  []string{want(gpuA, "Reset", "GPUResetRequired", 154)},
		},
		"154 announces more than the table": {
			lines: []line{a(0, 62), action(time.Second, "Node Reboot Required")},
			want:  []string{want(gpuA, "Reboot", "GPUResetRequired", 62)},
		},
		"154 announces less than the table": {
			lines: []line{action(0, "Drain P2P"), a(0, 62), action(0, "Node Reboot Required"), action(0, "Drain P2P")},
			want:  []string{want(gpuA, "Reset", "GPUResetRequired", 62)},
		},
		"154 before the error that it is about": {
			lines: []line{action(0, "Node Reboot Required"), a(0, 95)},
			want:  []string{want(gpuA, "Reboot", "GPUMemoryErrorUncontained", 95)},
		},
		"154 does not find a lost GPU": {
			lines: []line{a(0, 79), action(0, "GPU Reset Required")}, want: []string{want(gpuA, "Reboot", "GPULost", 79)},
		},
		"154 with an unknown action": {
			lines: []line{a(0, 62), action(0, "Call Somebody")}, want: []string{want(gpuA, "Reset", "GPUResetRequired", 62)},
		},
		"recovery: the driver announces that nothing is needed": {
			lines: []line{a(0, 48), a(0, 63), action(0, "GPU Reset Required"), action(hour, "None")},
		},
		"recovery: a person has reset the GPU": {lines: []line{a(0, 48), reset(hour)}},
		"recovery: time alone is none": {
			lines: []line{a(0, 48), b(1000*hour, 13)}, want: []string{want(gpuA, "Reset", "GPUUncorrectableECC", 48)},
		},
		"recovery: another GPU is reset": {
			lines: []line{b(0, 48), reset(hour)}, want: []string{want(gpuB, "Reset", "GPUUncorrectableECC", 48)},
		},
		"flapping: a fault after each recovery": {
			lines: []line{a(0, 48), reset(0), a(0, 48), reset(0), a(hour, 48)},
			want:  []string{want(gpuA, "Reset", "GPUUncorrectableECC", 48)},
		},
		"two GPUs": {
			lines: []line{b(0, 79), a(0, 48)},
			want:  []string{want(gpuA, "Reset", "GPUUncorrectableECC", 48), want(gpuB, "Reboot", "GPULost", 79)},
		},
		"a line that a program has made up": {lines: []line{{text: of(gpuA, 79, "x"), program: true}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newState("b", DefaultWindow, gpuhealth.Report{})
			play(t, s, 1, test.lines)
			g.Expect(faults(s)).To(ConsistOf(test.want))
			var watched []string
			for _, d := range s.devices {
				for _, note := range d.notes {
					if note.Class == gpuhealth.Watch {
						watched = append(watched, note.Reason)
					}
				}
			}
			g.Expect(watched).To(ConsistOf(test.watched))
		})
	}
	t.Logf("%d cases", len(tests))
}

func faults(s *state) []string {
	var found []string
	for _, fault := range s.report().Faults {
		found = append(found, want(fault.PCI, fault.Class, fault.Reason, fault.Xid+fault.SXid))
	}
	return found
}

// recordOf returns the record of /dev/kmsg.
func recordOf(sequence int, l line) string {
	priority := 3
	if l.program {
		priority = 14
	}
	return fmt.Sprintf("%d,%d,%d,-;%s\n SUBSYSTEM=pci\n", priority, sequence, l.after.Microseconds(), l.text)
}

// play writes the lines into a stand-in for the kernel log, and reads it.
func play(t *testing.T, s *state, first int, lines []line) {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "kmsg")
	content := "6,0,0,-;Linux version\n"
	for i, l := range lines {
		content += recordOf(first+i, l)
	}
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	file, err := os.Open(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	log := newKernelLog(file, func() { t.Error("records are lost") })
	for {
		found, err := log.next()
		if err != nil {
			return
		}
		if event, is := xid.Parse(found.text, found.fromKernel); is {
			s.takeEvent(found.sequence, event, noon.Add(found.at))
		}
	}
}

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// An agent that is restarted in the same boot reads the log again, which may have lost its beginning.
func TestARestartedAgentKnowsTheFaultsOfItsBoot(t *testing.T) {
	before := newState("b", DefaultWindow, gpuhealth.Report{})
	lines := []line{a(0, 79), b(0, 48), {text: "gpu-operator: GPU " + gpuB + " has been reset", program: true}}
	play(t, before, 1, lines)
	reported := before.report()
	for name, kept := range map[string]int{"all": 0, "a part": 2, "nothing": 3} {
		t.Run("the log has kept "+name, func(t *testing.T) {
			g := NewWithT(t)
			after := newState("b", DefaultWindow, reported)
			play(t, after, kept+1, lines[kept:])
			g.Expect(after.report()).To(Equal(reported))
		})
	}
	t.Run("a reset while it was down", func(t *testing.T) {
		after := newState("b", DefaultWindow, reported)
		play(t, after, 1, append(lines, reset(0)))
		NewWithT(t).Expect(after.report().Faults).To(BeEmpty())
	})
	t.Run("a boot ends all faults", func(t *testing.T) {
		NewWithT(t).Expect(newState("next", DefaultWindow, reported).report().Faults).To(BeEmpty())
	})
}

// A fault that is found again after its recovery begins anew; one that becomes worse does not.
func TestSince(t *testing.T) {
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	play(t, s, 1, []line{a(time.Minute, 48), a(time.Hour, 79)})
	g.Expect(s.report().Faults[0].Since).To(BeTemporally("==", noon.Add(time.Minute)))
	play(t, s, 10, []line{reset(2 * time.Hour), a(3*time.Hour, 48)})
	g.Expect(s.report().Faults[0].Since).To(BeTemporally("==", noon.Add(3*time.Hour)))
}

func TestTheStateIsBounded(t *testing.T) {
	g := NewWithT(t)
	s := newState("b", DefaultWindow, gpuhealth.Report{})
	for i := range 1000 {
		pci := fmt.Sprintf("0000:%02x:%02x.0", i%256, i/256)
		for number := range 200 {
			s.takeEvent(uint64(i*200+number), xid.Event{PCI: pci, Xid: 1 + (number+i)%998, PID: number + 1}, noon)
		}
	}
	g.Expect(s.devices).To(HaveLen(maxDevices))
	for _, d := range s.devices {
		g.Expect(len(d.counts)).To(BeNumerically("<=", maxNumbers+1))
		for _, recent := range d.repeats {
			g.Expect(len(recent)).To(BeNumerically("<=", maxProcesses))
		}
	}
}

func TestWhatIsNoRecordIsSkipped(t *testing.T) {
	for _, text := range []string{
		"", " SUBSYSTEM=pci", "3,1", "3,1,2,-", "x,1,2,-;text", "3,x,2,-;text", "3,1,-2,-;text",
	} {
		_, is := parseRecord(text + "\n")
		NewWithT(t).Expect(is).To(BeFalse(), text)
	}
	found, is := parseRecord("3,7,1500000,c,caller=T1;a;b\n")
	NewWithT(t).Expect(is).To(BeTrue())
	NewWithT(t).Expect(found).To(Equal(record{sequence: 7, at: 1500 * time.Millisecond, fromKernel: true, text: "a;b"}))
}
