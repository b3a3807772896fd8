package gpuhealth_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
)

var noon = time.Date(2026, 11, 25, 12, 3, 0, 0, time.UTC)

func lost(pci string) gpuhealth.Fault {
	return gpuhealth.Fault{PCI: pci, Class: gpuhealth.Reboot, Reason: gpuhealth.ReasonGPULost, Xid: 79, Since: noon}
}

func TestReportsSurviveTheAnnotation(t *testing.T) {
	g := NewWithT(t)
	reset := gpuhealth.Fault{
		PCI: "0000:05:00.0", UUID: "GPU-0b2a-1", Class: gpuhealth.Reset, Reason: "NVLinkError", Xid: 74,
		Since: noon.Add(300 * time.Millisecond),
	}
	value, err := gpuhealth.Report{
		Boot: "b-1", Sequence: 7, Faults: []gpuhealth.Fault{reset, lost("0000:1b:00.0"), lost("0000:0a:00.0")},
	}.Encode()
	g.Expect(err).NotTo(HaveOccurred())
	got, err := gpuhealth.Decode(value)
	g.Expect(err).NotTo(HaveOccurred())
	reset.Since = noon
	g.Expect(got).To(Equal(gpuhealth.Report{
		Boot: "b-1", Sequence: 7, Faults: []gpuhealth.Fault{lost("0000:0a:00.0"), lost("0000:1b:00.0"), reset},
	}))
	g.Expect(got.Lost()).To(Equal(2))
}

func TestDecodeRefusesWhatTheAgentDoesNotWrite(t *testing.T) {
	const fault = `{"pci":"0000:1b:00.0","class":"Reset","reason":"GPUResetRequired","xid":62,` +
		`"since":"2026-11-25T12:03:00Z"}`
	valid := `{"boot":"b","faults":[` + fault + `]}`
	_, err := gpuhealth.Decode(valid)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, value := range map[string]string{
		"nothing":          "",
		"no JSON":          "x",
		"another type":     `{"boot":1}`,
		"no boot":          `{"faults":[]}`,
		"a large value":    `{"boot":"b","faults":[],"x":"` + strings.Repeat("x", 40<<10) + `"}`,
		"many faults":      `{"boot":"b","faults":[` + strings.Repeat(fault+",", 64) + fault + `]}`,
		"an address":       strings.Replace(valid, "0000:1b:00.0", "<b>", 1),
		"a healthy class":  strings.Replace(valid, "Reset", "Watch", 1),
		"a reason":         strings.Replace(valid, "GPUResetRequired", "a sentence", 1),
		"no error":         strings.Replace(valid, `"xid":62`, `"xid":0`, 1),
		"a negative error": strings.Replace(valid, `"xid":62`, `"xid":-1`, 1),
		"no time":          strings.Replace(valid, `"2026-11-25T12:03:00Z"`, "null", 1),
	} {
		_, err := gpuhealth.Decode(value)
		NewWithT(t).Expect(err).To(HaveOccurred(), name)
	}
}

func TestText(t *testing.T) {
	named := lost("0000:1b:00.0")
	named.UUID = "GPU-0b2a"
	for want, faults := range map[string][]gpuhealth.Fault{
		"": nil,
		"GPU 0000:1b:00.0 lost since 2026-11-25T12:03:00Z, Xid 79":        {lost("0000:1b:00.0")},
		"GPU-0b2a (0000:1b:00.0) lost since 2026-11-25T12:03:00Z, Xid 79": {named},
		"NVSwitch 0000:c1:00.0 needs a reset since 2026-11-25T12:03:00Z, SXid 12028; " +
			"GPU 0000:05:00.0 needs a person since 2026-11-25T12:03:00Z, Xid 54": {
			{PCI: "0000:c1:00.0", Class: gpuhealth.Reset, SXid: 12028, Since: noon},
			{PCI: "0000:05:00.0", Class: gpuhealth.Hardware, Xid: 54, Since: noon},
		},
	} {
		NewWithT(t).Expect(gpuhealth.Report{Faults: faults}.Text()).To(Equal(want))
	}
	many := gpuhealth.Report{Faults: []gpuhealth.Fault{lost("a"), lost("b"), lost("c"), lost("d"), lost("e")}}
	NewWithT(t).Expect(many.Text()).To(HaveSuffix("Xid 79; and 2 more"))
}

func TestClassesAreOrdered(t *testing.T) {
	g := NewWithT(t)
	order := []gpuhealth.Class{gpuhealth.Watch, gpuhealth.Reset, gpuhealth.Reboot, gpuhealth.Hardware}
	for i, class := range order {
		g.Expect(class.IsUnhealthy()).To(Equal(i > 0))
		for j, other := range order {
			g.Expect(class.Compare(other)).To(Equal(cmp.Compare(i, j)))
		}
	}
	g.Expect(gpuhealth.App.Compare(gpuhealth.Infra)).To(Equal(0))
}
