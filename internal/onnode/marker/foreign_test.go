package marker

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// at is a file's content and its time, in seconds after the boot.
type at struct {
	content string
	seconds int64
}

// What NVIDIA's validator and start-up probe write.
const (
	theirHost      = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	theirContainer = "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	theirProbe     = "GDRCOPY_ENABLED: \nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: \n"
)

func TestMarkersOfNVIDIAsValidator(t *testing.T) {
	tests := map[string]struct {
		read  labels.Marker
		files map[string]at
		stat  string // Of the kernel; the usual one if empty.
		err   string
	}{
		"trusts a driver on the host": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 50}}},
		"trusts the driver of a driver container": {
			read: "driver", files: map[string]at{".driver-ctr-ready": {theirProbe, 40}, "driver-ready": {theirContainer, 50}}},
		"trusts the driver that was proven at once": {
			read: "driver", files: map[string]at{".driver-ctr-ready": {theirProbe, 50}, "driver-ready": {theirContainer, 50}}},
		"trusts an empty file beside a driver container": {
			read: "toolkit", files: map[string]at{".driver-ctr-ready": {theirProbe, 40}, "toolkit-ready": {"", 50}}},
		"trusts an empty file beside a driver on the host": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirHost, 40}, "toolkit-ready": {"", 50}}},
		"trusts an empty file beside a driver on the host that ours has proven": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirHost + "BOOT_ID=boot-now\n", 60}, "toolkit-ready": {"", 50}}},
		"trusts a file of the second in which the node was booted": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 0}}},

		"refuses a driver of before the boot": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, -1}},
			err: "driver-ready is stale: it was written before the node was booted"},
		"refuses an empty file of before the boot": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirHost, 40}, "toolkit-ready": {"", -1}},
			err: "toolkit-ready is stale: it was written before the node was booted"},
		"refuses a driver of before the driver container": {
			read: "driver", files: map[string]at{".driver-ctr-ready": {theirProbe, 60}, "driver-ready": {theirContainer, 50}},
			err: "driver-ready is stale: it was written before the present driver container was ready"},
		"refuses an empty file of before the driver container": {
			read: "toolkit", files: map[string]at{".driver-ctr-ready": {"DRIVER_INSTANCE: pod-1\n", 60}, "toolkit-ready": {"", 50}},
			err: "toolkit-ready is stale: it was written before the present driver container"},
		"refuses the driver of a driver container that is gone": {
			read: "driver", files: map[string]at{"driver-ready": {theirContainer, 50}},
			err: "driver-ready is stale: its driver container is not ready (.driver-ctr-ready is missing)"},
		"refuses an empty file of a driver container that is gone": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirContainer, 40}, "toolkit-ready": {"", 50}},
			err: "toolkit-ready has no line BOOT_ID= and so is only as good as the driver's marker: driver-ready is stale"},
		"refuses an empty file without a driver": {
			read: "toolkit", files: map[string]at{"toolkit-ready": {"", 50}},
			err: "as good as the driver's marker: driver-ready is missing"},
		"refuses a driver that is half written": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost[:len(theirHost)-len("DEV_ROOT_CTR_PATH=/host\n")], 50}},
			err: "driver-ready is half written: it has no line DEV_ROOT_CTR_PATH="},
		"refuses a driver whose last line is half written": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost[:len(theirHost)-3], 50}},
			err: "driver-ready is half written: its last line does not end"},
		"refuses a driver that is empty": {
			read: "driver", files: map[string]at{"driver-ready": {"", 50}}, err: "it has no line IS_HOST_DRIVER="},
		"refuses a driver of neither kind": {
			read: "driver", files: map[string]at{"driver-ready": {"IS_HOST_DRIVER=\n" + theirHost[len("IS_HOST_DRIVER=true\n"):], 50}},
			err: "its driver container is not ready"},
		"refuses all where the boot is not known": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 50}}, stat: "cpu 1 2 3\n",
			err: "driver-ready has no line BOOT_ID=, and whether it is of this boot is not known"},
		"refuses all where the boot is no number": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 50}}, stat: "btime soon\n", err: "is no number"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path := t.TempDir()
			for file, is := range tc.files {
				put(t, filepath.Join(path, file), is.content, is.seconds)
			}
			stat := filepath.Join(t.TempDir(), "stat")
			if tc.stat == "" {
				tc.stat = "cpu 1 2 3\nbtime 1700000000\nprocesses 7\n"
			}
			put(t, stat, tc.stat, 0)
			found, err := Dir{Path: path, BootID: "boot-now", StatFile: stat}.Read(tc.read)
			if tc.err != "" {
				g.Expect(found).To(BeNil())
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestBootTimeOfThisMachine(t *testing.T) {
	booted, err := BootTime(labels.ProcStat)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(booted.Unix()).To(BeNumerically(">", 1600000000))
	_, err = BootTime(filepath.Join(t.TempDir(), "none"))
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("is /proc mounted?")))
}
