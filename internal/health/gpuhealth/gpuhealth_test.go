package gpuhealth_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
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

// Of many notes and earlier faults, those that matter most stay, in an order that does not change.
func TestNotesSurviveTheAnnotation(t *testing.T) {
	g := NewWithT(t)
	note := func(pci string, class gpuhealth.Class, reason string, xid, hours int) gpuhealth.Note {
		since := noon.Add(time.Duration(hours) * time.Hour)
		return gpuhealth.Note{PCI: pci, Class: class, Reason: reason, Xid: xid, Since: since}
	}
	past := func(pci, reason string, hours int) gpuhealth.Past {
		return gpuhealth.Past{PCI: pci, Reason: reason, At: noon.Add(time.Duration(hours) * time.Hour), Boot: "b-0"}
	}
	const a, b = "0000:05:00.0", "0000:1b:00.0"
	report := gpuhealth.Report{Boot: "b-1", Faults: []gpuhealth.Fault{}, Notes: []gpuhealth.Note{
		note("", gpuhealth.Infra, "FabricDown", 0, 0), note(a, gpuhealth.Watch, "Later", 0, 2),
		note(a, gpuhealth.Watch, "Early", 63, 1), note(a, gpuhealth.Watch, "Early", 64, 1),
		note(a, gpuhealth.Watch, "Other", 62, 1), note(b, gpuhealth.Watch, "Early", 62, 1),
	}, Past: []gpuhealth.Past{past(b, "Last", 2), past(a, "A", 1), past(a, "B", 1), past(b, "A", 1)}}
	for len(report.Notes) < gpuhealth.MaxNotes {
		report.Notes = append(report.Notes, note(b, gpuhealth.App, "Program", 13, -len(report.Notes)))
	}
	for len(report.Past) < gpuhealth.MaxPast {
		report.Past = append(report.Past, past(b, "Older", -len(report.Past)))
	}
	shuffled := report
	shuffled.Notes = append([]gpuhealth.Note{note(b, gpuhealth.App, "Program", 13, -99)}, report.Notes...)
	shuffled.Past = append([]gpuhealth.Past{past(b, "Older", -99)}, report.Past...)
	shuffled.Past[1].At = shuffled.Past[1].At.Add(time.Millisecond)
	slices.Reverse(shuffled.Notes)
	slices.Reverse(shuffled.Past)
	value, err := shuffled.Encode()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gpuhealth.Decode(value)).To(Equal(report))

	named := note(a, gpuhealth.Watch, "Other", 0, 0)
	named.UUID = "GPU-1"
	for want, note := range map[string]gpuhealth.Note{
		"the driver of the node": report.Notes[0], "GPU 0000:05:00.0, Xid 63": report.Notes[2], "GPU-1 (0000:05:00.0)": named,
	} {
		g.Expect(note.Text()).To(Equal(want))
	}
}

func TestPastIs(t *testing.T) {
	for _, test := range []struct {
		uuid, pci, otherUUID, otherPCI string
		want                           bool
	}{
		{"GPU-1", "a", "GPU-1", "b", true}, {"GPU-1", "a", "GPU-2", "a", false}, {"", "a", "GPU-1", "a", true},
		{"GPU-1", "a", "", "a", true}, {"GPU-1", "a", "", "b", false},
	} {
		past := gpuhealth.Past{UUID: test.uuid, PCI: test.pci}
		NewWithT(t).Expect(past.Is(test.otherPCI, test.otherUUID)).To(Equal(test.want), "%v", test)
	}
	for text, want := range map[string]bool{"": false, "GPU-0b2a-1": true, "MIG-0b2a": false} {
		NewWithT(t).Expect(gpuhealth.IsUUID(text)).To(Equal(want), text)
	}
}

func TestDecodeRefusesWhatTheAgentDoesNotWrite(t *testing.T) {
	const fault = `{"pci":"0000:1b:00.0","class":"Reset","reason":"GPUResetRequired","xid":62,` +
		`"since":"2026-11-25T12:03:00Z"}`
	const note = `{"class":"Infra","reason":"FabricDown","since":"2026-11-25T12:03:00Z"}`
	const past = `{"pci":"0000:2b:00.0","reason":"GPULost","at":"2026-11-25T12:04:00Z"}`
	valid := `{"boot":"b","faults":[` + fault + `],"notes":[` + note + `],"past":[` + past + `]}`
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
		"many notes":       strings.Replace(valid, note, strings.Repeat(note+",", 32)+note, 1),
		"a note's address": strings.Replace(valid, `"class":"Infra"`, `"class":"Infra","pci":"<b>"`, 1),
		"a note's UUID":    strings.Replace(valid, `"class":"Infra"`, `"class":"Infra","uuid":"<b>"`, 1),
		"a note's class":   strings.Replace(valid, "Infra", "Reset", 1),
		"a note's reason":  strings.Replace(valid, "FabricDown", "a sentence", 1),
		"a note's error":   strings.Replace(valid, `"class":"Infra"`, `"class":"Infra","xid":-1`, 1),
		"a note's time":    strings.Replace(valid, note, `{"class":"Infra","reason":"FabricDown","since":null}`, 1),
		"much past":        strings.Replace(valid, past, strings.Repeat(past+",", 32)+past, 1),
		"a past address":   strings.Replace(valid, "0000:2b:00.0", "", 1),
		"a past UUID":      strings.Replace(valid, `"reason":"GPULost"`, `"reason":"GPULost","uuid":"<b>"`, 1),
		"a past reason":    strings.Replace(valid, "GPULost", "a sentence", 1),
		"a past time":      strings.Replace(valid, `"2026-11-25T12:04:00Z"`, "null", 1),
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
	many.Faults = many.Faults[:3]
	NewWithT(t).Expect(many.Text()).To(HaveSuffix("GPU c lost since 2026-11-25T12:03:00Z, Xid 79"))
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
