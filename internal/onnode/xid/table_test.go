package xid_test

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

func TestEachXidHasOneRule(t *testing.T) {
	g := NewWithT(t)
	seen := map[int]string{}
	for _, rule := range xid.Table() {
		g.Expect(rule.Meaning).NotTo(BeEmpty())
		g.Expect(rule.Numbers).NotTo(BeEmpty(), rule.Meaning)
		for _, number := range rule.Numbers {
			g.Expect(seen).NotTo(HaveKey(number), rule.Meaning)
			g.Expect(number).To(And(BeNumerically(">", 0), BeNumerically("<", 999)))
			seen[number] = rule.Meaning
		}
		if rule.Class.IsUnhealthy() {
			g.Expect(rule.Reason).NotTo(BeEmpty(), rule.Meaning)
		}
		if rule.Repeat.Count > 0 {
			g.Expect(rule.Repeat.Within).To(BeNumerically(">", xid.Burst), rule.Meaning)
		}
	}
	g.Expect(seen).NotTo(HaveKey(xid.RecoveryAction))
}

// The classes are those of NVIDIA's catalogue, written down here by hand.
func TestClasses(t *testing.T) {
	for class, numbers := range map[gpuhealth.Class][]int{
		gpuhealth.App: {8, 11, 13, 25, 31, 32, 39, 43, 60, 68, 85, 89, 105, 126, 135, 137, 139},
		gpuhealth.Watch: {
			37, 44, 45, 63, 66, 92, 93, 94, 106, 109, 121, 141, 144, 150, 153, 157, 160, 161, 162, 163, 164, 165, 168,
		},
		gpuhealth.Reset:    {46, 48, 62, 64, 74, 95, 110, 119, 120, 136, 140, 143, 149, 155, 156, 158, 171, 172},
		gpuhealth.Reboot:   {79},
		gpuhealth.Hardware: {54, 142, 167},
		gpuhealth.Infra:    {78, 151, 159, 166, 169, 170},
	} {
		for _, number := range numbers {
			NewWithT(t).Expect(xid.Lookup(number).Class).To(Equal(class), "Xid %d", number)
		}
	}
}

// One Xid of each kind, with what its rule says besides its meaning.
func TestRules(t *testing.T) {
	const day = 24 * time.Hour
	for number, want := range map[int]xid.Rule{
		13: {
			Class: gpuhealth.App, Reason: "GPUApplicationError", Source: xid.Catalogue,
			Repeat: xid.Repeat{
				Count: 3, Within: day, Processes: true, Class: gpuhealth.Watch, Reason: "GPUApplicationErrors",
			},
		},
		45: {Class: gpuhealth.Watch, Reason: "GPUChannelsTornDown", Alone: time.Minute, Source: xid.Catalogue},
		48: {Class: gpuhealth.Reset, Reason: "GPUUncorrectableECC", Source: xid.Catalogue},
		74: {
			Class: gpuhealth.Reset, Reason: "NVLinkError", Source: xid.Text,
			Repeat: xid.Repeat{Count: 3, Within: day, Class: gpuhealth.Hardware, Reason: "NVLinkError"},
		},
		79: {Class: gpuhealth.Reboot, Reason: "GPULost", Source: xid.Catalogue},
		92: {
			Class: gpuhealth.Watch, Reason: "GPUMemoryDegrading", Source: xid.Catalogue,
			Repeat: xid.Repeat{Count: 3, Within: day, Class: gpuhealth.Hardware, Reason: "GPUMemoryDegrading"},
		},
		94: {Class: gpuhealth.Watch, Reason: "GPUMemoryErrorContained", Source: xid.Text},
		109: {
			Class: gpuhealth.Watch, Source: xid.Choice,
			Repeat: xid.Repeat{Count: 2, Within: 10 * time.Minute, Class: gpuhealth.Reset, Reason: "GPUResetRequired"},
		},
		167: {Class: gpuhealth.Hardware, Reason: "GPUHardwareError", Source: xid.Choice},
		999: {Class: gpuhealth.Watch, Source: xid.Choice},
	} {
		rule := xid.Lookup(number)
		rule.Numbers, rule.Meaning = nil, ""
		NewWithT(t).Expect(rule).To(Equal(want), "Xid %d", number)
	}
}

func TestUnknownXidsAreWatched(t *testing.T) {
	for _, number := range []int{1, 14, 61, 123, 138, 173, 500, 999} {
		rule := xid.Lookup(number)
		NewWithT(t).Expect(rule.Class).To(Equal(gpuhealth.Watch), "Xid %d", number)
		NewWithT(t).Expect(rule.Reason).To(BeEmpty(), "Xid %d", number)
		NewWithT(t).Expect(rule.Numbers).To(ContainElement(number))
		NewWithT(t).Expect(rule.Meaning).NotTo(BeEmpty(), "Xid %d", number)
	}
}

// Each reason is one of the API, so that users find its cause and its remedy.
func TestReasonsAreThoseOfTheAPI(t *testing.T) {
	g := NewWithT(t)
	declared, err := os.ReadFile("../../../api/v1/health_types.go")
	g.Expect(err).NotTo(HaveOccurred())
	reasons := []string{xid.ReasonSwitch}
	for _, rule := range xid.Table() {
		if (rule.Repeat.Count > 0) != (rule.Repeat.Reason != "") {
			t.Errorf("%v: %v", rule.Numbers, rule.Repeat)
		}
		for _, reason := range []string{rule.Reason, rule.Repeat.Reason} {
			if reason != "" {
				reasons = append(reasons, reason)
			}
		}
	}
	for action, class := range map[xid.Action]gpuhealth.Class{
		"None": gpuhealth.Watch, "GPU Reset Required": gpuhealth.Reset, "Drain P2P": gpuhealth.Reset,
		"Drain and Reset": gpuhealth.Reset, "Node Reboot Required": gpuhealth.Reboot, "Recover Fabric": gpuhealth.Infra,
	} {
		rule, known := action.Rule()
		g.Expect(known).To(BeTrue())
		g.Expect(rule.Class).To(Equal(class), string(action))
		if action != xid.ActionNone {
			reasons = append(reasons, rule.Reason)
		}
	}
	_, known := xid.Action("Call Somebody").Rule()
	g.Expect(known).To(BeFalse())
	for _, reason := range reasons {
		g.Expect(strings.Contains(string(declared), "Reason"+reason+" = \""+reason+"\"")).To(BeTrue(), reason)
	}
}
