package marker

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// at is a file's content and its time, in seconds after the boot.
type at struct {
	content string
	seconds int64
}

// What NVIDIA's validator and start-up probe write.
const (
	theirHost = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n" +
		"NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	theirContainer = "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n" +
		"NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	theirProbe = "GDRCOPY_ENABLED: \nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: \n"
)

func TestMarkersOfNVIDIAsValidator(t *testing.T) {
	tests := map[string]struct {
		read  labels.Marker
		files map[string]at
		stat  string // Content of /proc/stat; a usual one if empty.
		err   string
	}{
		"trusts a driver on the host": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 50}}},
		"trusts the driver of a driver container": {
			read: "driver", files: map[string]at{".driver-ctr-ready": {theirProbe, 40}, "driver-ready": {theirContainer, 50}}},
		"trusts a driver that was validated within the same second": {
			read: "driver", files: map[string]at{".driver-ctr-ready": {theirProbe, 50}, "driver-ready": {theirContainer, 50}}},
		"trusts an empty file next to a driver container": {
			read: "toolkit", files: map[string]at{".driver-ctr-ready": {theirProbe, 40}, "toolkit-ready": {"", 50}}},
		"trusts an empty file next to a driver on the host": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirHost, 40}, "toolkit-ready": {"", 50}}},
		"trusts an empty file next to our marker of a driver on the host": {
			read: "toolkit",
			files: map[string]at{
				"driver-ready": {theirHost + "BOOT_ID=boot-now\n", 60}, "toolkit-ready": {"", 50},
			}},
		"trusts a file from the second of the boot": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 0}}},

		"refuses a driver from before the boot": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, -1}},
			err: "driver-ready is stale: it was written before the node booted"},
		"refuses an empty file from before the boot": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirHost, 40}, "toolkit-ready": {"", -1}},
			err: "toolkit-ready is stale: it was written before the node booted"},
		"refuses a driver from before the driver container": {
			read: "driver", files: map[string]at{".driver-ctr-ready": {theirProbe, 60}, "driver-ready": {theirContainer, 50}},
			err: "driver-ready is stale: it was written before the current driver container was ready"},
		"refuses an empty file from before the driver container": {
			read: "toolkit",
			files: map[string]at{
				".driver-ctr-ready": {"DRIVER_INSTANCE: pod-1\n", 60}, "toolkit-ready": {"", 50},
			},
			err: "toolkit-ready is stale: it was written before the current driver container"},
		"refuses the driver of a driver container that is gone": {
			read: "driver", files: map[string]at{"driver-ready": {theirContainer, 50}},
			err: "driver-ready is stale: its driver container is not ready (.driver-ctr-ready is missing)"},
		"refuses an empty file of a driver container that is gone": {
			read: "toolkit", files: map[string]at{"driver-ready": {theirContainer, 40}, "toolkit-ready": {"", 50}},
			err: "toolkit-ready has no line BOOT_ID=, so it depends on the driver's marker: driver-ready is stale"},
		"refuses an empty file without a driver": {
			read: "toolkit", files: map[string]at{"toolkit-ready": {"", 50}},
			err: "it depends on the driver's marker: driver-ready is missing"},
		"refuses a driver with a missing line": {
			read: "driver",
			files: map[string]at{
				"driver-ready": {theirHost[:len(theirHost)-len("DEV_ROOT_CTR_PATH=/host\n")], 50},
			},
			err: "driver-ready is incomplete: it has no line DEV_ROOT_CTR_PATH="},
		"refuses a driver whose last line is cut off": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost[:len(theirHost)-3], 50}},
			err: "driver-ready is incomplete: its last line does not end"},
		"refuses a driver that is empty": {
			read: "driver", files: map[string]at{"driver-ready": {"", 50}}, err: "it has no line IS_HOST_DRIVER="},
		"refuses a driver neither on the host nor in a container": {
			read: "driver",
			files: map[string]at{
				"driver-ready": {"IS_HOST_DRIVER=\n" + theirHost[len("IS_HOST_DRIVER=true\n"):], 50},
			},
			err: "its driver container is not ready"},
		"refuses all if the time of the boot is missing": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 50}}, stat: "cpu 1 2 3\n",
			err: "driver-ready has no line BOOT_ID=, and the time of the boot is unknown"},
		"refuses all if the time of the boot is no number": {
			read: "driver", files: map[string]at{"driver-ready": {theirHost, 50}}, stat: "btime soon\n", err: "is not a number"},
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
