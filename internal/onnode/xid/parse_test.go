package xid_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		line     string
		program  bool
		want     xid.Event
		isNoCase bool
	}{
		"an error of a program": {
			line: "NVRM: Xid (PCI:0000:1b:00): 13, pid=4242, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 1)",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 13, PID: 4242},
		},
		"a quoted process": {
			line: "NVRM: Xid (PCI:0000:1b:00): 31, pid='4242', name=a, MMU Fault",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 31, PID: 4242},
		},
		"an unknown process": {
			line: "NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			want: xid.Event{PCI: "0000:3b:00.0", Xid: 79},
		},
		"a MIG device": {
			line: "NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 43, pid=7, name=a, Ch 00000008",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 43, PID: 7},
		},
		"an old driver": {
			line: "NVRM: Xid (0000:1b:00): 48, An uncorrectable double bit error (DBE) has been detected",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 48},
		},
		"a large domain": {
			line: "NVRM: Xid (PCI:10000:1b:00): 48, x", isNoCase: true,
		},
		"a domain of eight digits": {
			line: "NVRM: Xid (PCI:00010000:1b:00): 48, x", want: xid.Event{PCI: "00010000:1b:00.0", Xid: 48},
		},
		"no text": {line: "NVRM: Xid (PCI:0000:1b:00): 61", want: xid.Event{PCI: "0000:1b:00.0", Xid: 61}},
		"a recovery action": {
			line: "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 154, Action: xid.ActionReboot},
		},
		"an unknown recovery action": {
			line: "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x9 (Call Somebody)",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 154, Action: "Call Somebody"},
		},
		"a recovery action without a text": {
			line: "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed",
			want: xid.Event{PCI: "0000:1b:00.0", Xid: 154},
		},
		"a fatal error of an NVSwitch": {
			line: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 46 egress non-posted PRIV error",
			want: xid.Event{PCI: "0000:c1:00.0", SXid: 12028, Fatal: true},
		},
		"another error of an NVSwitch": {
			line: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, Link 30 LTSSM Fault Up",
			want: xid.Event{PCI: "0000:c1:00.0", SXid: 20034},
		},
		"the data of an error of an NVSwitch": {
			line:     "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Data {0x00140004, 0x00100000}",
			isNoCase: true,
		},
		"an error of an NVSwitch without a domain": {
			line: "nvidia-nvswitch3: SXid (PCI:c1:00.0): 12028, Fatal, x", isNoCase: true,
		},
		"number 0 of an NVSwitch": {
			line: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 0, Fatal, x", isNoCase: true,
		},
		"a reset": {
			line: "gpu-operator: GPU 0000:1b:00.0 has been reset", program: true,
			want: xid.Event{PCI: "0000:1b:00.0", Reset: true},
		},
		"a reset of no address": {
			line: "gpu-operator: GPU 1b:00.0 has been reset", program: true, isNoCase: true,
		},
		"a line that a program has made up": {
			line: "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", program: true, isNoCase: true,
		},
		"a line that quotes another": {
			line: "audit: NVRM: Xid (PCI:0000:1b:00): 79, x", isNoCase: true,
		},
		"no number":        {line: "NVRM: Xid (PCI:0000:1b:00): x", isNoCase: true},
		"number 0":         {line: "NVRM: Xid (PCI:0000:1b:00): 0, x", isNoCase: true},
		"no address":       {line: "NVRM: Xid (PCI:1b:00): 79, x", isNoCase: true},
		"another message":  {line: "NVRM: GPU at PCI:0000:1b:00: GPU-0b2a", isNoCase: true},
		"an empty message": {isNoCase: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, is := xid.Parse(test.line, !test.program)
			g.Expect(is).To(Equal(!test.isNoCase))
			if is {
				g.Expect(got).To(Equal(test.want))
			}
		})
	}
}

func TestResetLineIsParsed(t *testing.T) {
	g := NewWithT(t)
	got, is := xid.Parse(xid.ResetLine("0000:1b:00.0"), false)
	g.Expect(is).To(BeTrue())
	g.Expect(got).To(Equal(xid.Event{PCI: "0000:1b:00.0", Reset: true}))
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0000:1b:00": "0000:1b:00.0", "0000:1B:00.0": "0000:1b:00.0", "00000000:1B:00.0": "0000:1b:00.0",
		"0000:1b:00.3": "0000:1b:00.3", "00010000:01:00.0": "00010000:01:00.0", "1b:00.0": "", "0000:1b:00.9": "", "": "",
	} {
		got, _ := xid.Address(text)
		NewWithT(t).Expect(got).To(Equal(want), text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
	f.Add("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 46")
	f.Fuzz(func(t *testing.T, line string) {
		if event, is := xid.Parse(line, true); is && (event.PCI == "" || event.Xid == 0 && event.SXid == 0) {
			t.Errorf("%q gives %+v", line, event)
		}
	})
}
