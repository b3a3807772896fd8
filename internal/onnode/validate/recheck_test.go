package validate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// recheckedNode is a node with two GPUs whose driver has been validated.
type recheckedNode struct {
	*WithT
	gpuNode
	markers marker.Dir
}

func newRecheckedNode(t *testing.T) *recheckedNode {
	t.Helper()
	n := &recheckedNode{WithT: NewWithT(t), gpuNode: gpuNode{t, t.TempDir()}}
	n.SetDefaultEventuallyTimeout(time.Minute)
	n.kernel()
	n.devices("host")
	n.markers = marker.Dir{Path: n.path("markers"), BootID: "boot-1"}
	n.Expect(os.MkdirAll(n.path("markers"), 0o755)).To(Succeed())
	n.Expect(n.markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	return n
}

// recheck is that of one run of the container.
func (n *recheckedNode) recheck() *Recheck {
	return &Recheck{
		Markers: n.markers, SysRoot: n.path("sys"), ProcRoot: n.path("proc"), DevRoot: n.path("host/dev"),
		StateFile: n.path("presence.json"), Interval: time.Millisecond, Confirm: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// check makes one check, which must not fail, and returns the reason of the loss that it finds; empty for none.
func (n *recheckedNode) check() string {
	n.Helper()
	loss, err := n.recheck().checkAndNote()
	n.Expect(err).NotTo(HaveOccurred())
	if loss == nil {
		return ""
	}
	return loss.Error()
}

const firstGPU = "0000:3b:00.0"

// Whatever a validated node loses is found, with the number of GPUs that are lost, and is no loss any more once it is
// back.
func TestRecheckFindsLosses(t *testing.T) {
	information := "proc/driver/nvidia/gpus/" + firstGPU
	tests := map[string]struct {
		remove []string
		change map[string]string
		gpus   int
		want   string
	}{
		"the driver": {
			remove: []string{"sys/module/nvidia"}, want: "the kernel module nvidia, with which the node was validated, is not",
		},
		"the driver's version": {
			change: map[string]string{"sys/module/nvidia/version": "590.10"},
			want:   "the node was validated with driver 580.95.05, and now the kernel module has version 590.10",
		},
		"a GPU on the bus": {
			remove: []string{"sys/bus/pci/devices/" + firstGPU}, gpus: 1,
			want: "1 of 2 GPUs lost since the validation: 0000:3b:00.0 is not bound to the driver on the bus",
		},
		"a GPU of the driver": {
			remove: []string{information}, gpus: 1,
			want: "1 of 2 GPUs lost since the validation: 0000:3b:00.0 is not listed by the driver",
		},
		"the device node of a GPU": {
			remove: []string{"host/dev/nvidia0"}, gpus: 1,
			want: "1 of 2 GPUs lost since the validation: 0000:3b:00.0 has no device node /dev/nvidia0",
		},
		"all GPUs": {
			remove: []string{"proc/driver/nvidia/gpus"},
			want: "2 of 2 GPUs lost since the validation: 0000:3b:00.0 is not listed by the driver, " +
				"0000:3c:00.0 is not listed by the driver",
		},
		"the device node of all": {
			remove: []string{"host/dev/nvidiactl"}, want: "the device node /dev/nvidiactl is missing on the host",
		},
		"the device node of CUDA": {
			remove: []string{"host/dev/nvidia-uvm"}, want: "the device node /dev/nvidia-uvm is missing on the host",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := newRecheckedNode(t)
			n.Expect(n.check()).To(BeEmpty())
			for _, path := range test.remove {
				n.Expect(os.Rename(n.path(path), n.path("away"))).To(Succeed())
			}
			for path, content := range test.change {
				n.write(path, content)
			}
			n.Expect(n.check()).To(HavePrefix(test.want))
			err := n.recheck().Run(t.Context())
			loss := (*Loss)(nil)
			n.Expect(errors.As(err, &loss)).To(BeTrue(), "it is confirmed")
			n.Expect(loss.GPUs).To(Equal(test.gpus))
			n.Expect(len(loss.Error())).To(BeNumerically("<=", 300), "so that the operator shows the remedy")
			for _, path := range test.remove {
				n.Expect(os.Rename(n.path("away"), n.path(path))).To(Succeed())
			}
			if len(test.remove) > 0 {
				n.Expect(n.check()).To(BeEmpty(), "it is back")
			}
		})
	}
}

// What a node did not have when it was validated is not missing, as the device nodes of a driver that has its own /dev.
func TestRecheckMissesNothingNew(t *testing.T) {
	n := newRecheckedNode(t)
	for _, path := range []string{"host/dev", "sys/module/nvidia", "proc/driver"} {
		n.remove(path)
	}
	n.Expect(n.check()).To(BeEmpty())
	n.Expect(n.check()).To(BeEmpty())
}

// A reason names two of the lost GPUs. A GPU that was not bound before is not lost, and counts for none.
func TestRecheckNamesFewOfManyGPUs(t *testing.T) {
	g := NewWithT(t)
	before := presence{
		Bound: []string{"d", "c", "b", "a"}, Listed: map[string]string{"a": "0", "b": "1", "c": "2", "d": "", "e": "4"},
		Nodes: []string{"nvidia1", "nvidia2"},
	}
	now := presence{Bound: []string{"a", "b", "d"}, Listed: map[string]string{"a": "0", "b": "1"}}
	g.Expect(lossOf(before, now)).To(Equal(&Loss{GPUs: 3, reason: "3 of 4 GPUs lost since the validation: b has no " +
		"device node /dev/nvidia1, c is not bound to the driver on the bus and 1 more; see the kernel log, and reset the " +
		"GPU or reboot the node"}))
	now.Bound = nil
	g.Expect(lossOf(before, now)).To(HaveField("GPUs", 0), "no GPU can be used")
	g.Expect(lossOf(now, before)).To(Succeed())
	for before, now := range map[string]string{"": "580.95.05", "580.95.05": "", "590.10": "590.10"} {
		g.Expect(driverLoss(presence{Version: before}, presence{Version: now})).To(BeEmpty())
	}
}

// Another boot or another driver is validated anew, and nothing is checked meanwhile.
func TestRecheckPauses(t *testing.T) {
	n := newRecheckedNode(t)
	n.Expect(n.check()).To(BeEmpty())
	n.remove("sys/module/nvidia")
	n.remove("markers/driver-ready")
	n.Expect(n.check()).To(BeEmpty(), "the driver is being validated")
	n.Expect(n.markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	n.Expect(n.check()).NotTo(BeEmpty(), "in the same boot")
	n.markers.BootID = "boot-2"
	n.Expect(n.check()).To(BeEmpty(), "the marker is of an earlier boot")
	n.Expect(n.markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	n.Expect(n.check()).To(BeEmpty(), "this boot was validated without the module")
	n.Expect(n.check()).To(BeEmpty())
	n.write("presence.json", "{")
	n.Expect(n.check()).To(BeEmpty(), "a damaged file is replaced")
	n.Expect(n.check()).To(BeEmpty())
}

// A marker that has outlived its kernel module, or holds for another version, is a loss from the first check on, as
// when this container starts after the driver container has started again in its pod.
func TestRecheckNeedsTheModuleOfTheMarker(t *testing.T) {
	for name, test := range map[string]struct{ version, reason string }{
		"another version": {"580.82.07", "the node was validated with driver 580.82.07, and now the kernel module"},
		"none":            {"", "the kernel module nvidia, with which the node was validated, is not loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newRecheckedNode(t)
			if test.version == "" {
				n.remove("sys/module/nvidia")
			}
			module := marker.Assignment{Key: "DRIVER_MODULE", Value: test.version}
			n.Expect(n.markers.Write(labels.MarkerDriver, []marker.Assignment{module}, "")).To(Succeed())
			n.Expect(n.check()).To(HavePrefix(test.reason))
			n.Expect(n.check()).To(HavePrefix(test.reason), "it is still one")
			n.write("sys/module/nvidia/version", "580.95.05\n")
			n.write("sys/module/nvidia/initstate", "live\n")
			module.Value = "580.95.05"
			n.Expect(n.markers.Write(labels.MarkerDriver, []marker.Assignment{module}, "")).To(Succeed())
			n.Expect(n.check()).To(BeEmpty(), "it is validated again")
		})
	}
}

// A loss counts once a second check has confirmed it; the end of the context is no error.
func TestRecheckConfirms(t *testing.T) {
	n := newRecheckedNode(t)
	r, out := n.recheck(), gbytes.NewBuffer()
	r.Confirm, r.Log = time.Hour, slog.New(slog.NewTextHandler(out, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	n.Eventually(func() error { _, err := os.Stat(n.path("presence.json")); return err }).Should(Succeed())
	n.remove("host/dev/nvidia1")
	n.Eventually(out).Should(gbytes.Say("checking again what may be lost"))
	cancel()
	n.Eventually(ended).Should(Receive(BeNil()))
	next, said := n.recheck(), gbytes.NewBuffer()
	next.Log = slog.New(slog.NewTextHandler(said, nil))
	n.Expect(next.Run(t.Context())).To(MatchError(ContainSubstring("/dev/nvidia1")), "the next run confirms it")
	n.Expect(said.Contents()).To(BeEmpty(), "at once")
}

// What the checks wait for, and what they cannot read, is logged, once for each change, and ends nothing.
func TestRecheckSaysWhatItCannotCheck(t *testing.T) {
	n := newRecheckedNode(t)
	r, out := n.recheck(), &bytes.Buffer{}
	r.Log = slog.New(slog.NewTextHandler(out, nil))
	said := func(want string) {
		t.Helper()
		for range 2 {
			loss, err := r.checkAndNote()
			n.Expect(loss).NotTo(HaveOccurred())
			n.Expect(err).NotTo(HaveOccurred())
		}
		if want == "" {
			n.Expect(out.String()).To(BeEmpty())
		} else {
			n.Expect(strings.Count(out.String(), want)).To(Equal(1), out.String())
			n.Expect(strings.Count(out.String(), "\n")).To(Equal(1), out.String())
		}
		out.Reset()
	}
	said("")
	n.remove("markers/driver-ready")
	said(`level=INFO msg="checks are paused while the driver is not validated" because=`)
	n.Expect(n.markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	said(`level=INFO msg="checks go on: the driver is validated"`)
	n.write("presence.json", "{")
	said(`level=WARN msg="what the node had when it was validated cannot be read, and is noted anew" because=`)

	fails := func(stateFile, want string) {
		t.Helper()
		r.StateFile = n.path(stateFile)
		loss, err := r.checkAndNote()
		n.Expect(loss).NotTo(HaveOccurred(), want)
		n.Expect(err).To(MatchError(ContainSubstring(want)), stateFile)
	}
	fails("markers", "read what the node had when it was validated: ")
	n.remove("sys/bus/pci/devices")
	n.write("sys/bus/pci/devices", "no folder")
	fails("presence.json", "the GPUs on the bus cannot be read: ")
}
