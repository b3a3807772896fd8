package validate

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// failure is a fault of an otherwise healthy node, and the expected reason. Without the fault the node passes.
type failure struct {
	node  func(*testing.T) gpuNode
	check func(n gpuNode) (Check, []Companion)
	fault func(n gpuNode)
	// reason is part of the reason, and of no other.
	reason string
}

func onDriver(check func(n gpuNode) Driver) func(n gpuNode) (Check, []Companion) {
	return func(n gpuNode) (Check, []Companion) { d := check(n); return d.Check, d.Companions() }
}

var (
	host      = onDriver(gpuNode.driver)
	container = onDriver(gpuNode.container)
)

func module(component labels.Marker) func(n gpuNode) (Check, []Companion) {
	return func(n gpuNode) (Check, []Companion) { return Module(component, n.path("sys")), nil }
}

func mofed(onHost bool) func(n gpuNode) (Check, []Companion) {
	return func(n gpuNode) (Check, []Companion) {
		return MOFED{RDMA: true, OnHost: onHost, ReadyFile: n.path("mofed-ready"), SysRoot: n.path("sys"),
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))}.Check, nil
	}
}

// mofedNode is a healthy node with a Mellanox adapter and both variants of its driver.
func mofedNode(t *testing.T) gpuNode {
	t.Helper()
	n := hostNode(t)
	n.pci("0000:a0:00.0", "0x15b3", "0x020700", "mlx5_core")
	n.write("sys/module/mlx5_core/initstate", "live\n")
	n.write("mofed-ready", "")
	return n
}

// hostSMI makes the host's nvidia-smi print these lines and exit with the code.
func hostSMI(code int, lines ...string) func(n gpuNode) {
	return func(n gpuNode) { n.Helper(); n.smi("host/usr/bin/nvidia-smi", code, lines...) }
}

func removes(path string) func(n gpuNode) { return func(n gpuNode) { n.Helper(); n.remove(path) } }

func writes(path, content string) func(n gpuNode) {
	return func(n gpuNode) { n.Helper(); n.write(path, content) }
}

// smiFailures are failures of nvidia-smi itself.
var smiFailures = map[string]failure{
	"no permission": {
		hostNode,
		host,
		hostSMI(4, "Insufficient Permissions"),
		"fails with exit status 4: no permission to use the GPUs",
	},
	"no GPU found":        {hostNode, host, hostSMI(6, "No devices were found"), "exit status 6: no GPU found"},
	"a GPU without power": {hostNode, host, hostSMI(8, "power"), "exit status 8: a GPU has no external power"},
	"no driver loaded": {
		hostNode,
		host,
		hostSMI(9, "NVIDIA-SMI has failed."),
		`exit status 9: the driver's kernel module is not loaded; see the kernel log and the driver's log (output: ` +
			`"NVIDIA-SMI has failed.")`,
	},
	"an interrupt issue": {hostNode, host, hostSMI(10, "irq"), "exit status 10: the kernel has an interrupt issue"},
	"no NVML":            {hostNode, host, hostSMI(12, "NVML"), "exit status 12: libnvidia-ml.so.1 is missing"},
	"a corrupt infoROM": {
		hostNode,
		host,
		hostSMI(14, "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"),
		"exit status 14: the infoROM of a GPU is corrupt",
	},
	"a lost GPU, by its code": {
		hostNode,
		host,
		hostSMI(15, "GPU is lost"),
		"exit status 15: a GPU has fallen off the bus",
	},
	"two versions of a driver": {
		hostNode,
		host,
		hostSMI(18, "Failed to initialize NVML: Driver/library version mismatch"),
		"exit status 18: the kernel module and the driver's libraries differ",
	},
	"an internal error": {
		hostNode,
		host,
		hostSMI(255, "Unknown Error"),
		"exit status 255: internal error of the driver",
	},
	"an unknown code": {
		hostNode,
		host,
		hostSMI(77, "what?"),
		`exit status 77: see its output and the kernel log (output: "what?")`,
	},
	"a lost GPU, by its output": {
		hostNode,
		host,
		hostSMI(255, gpuLine(0), "Unable to determine the device handle for GPU1: 0000:3C:00.0: Unknown Error"),
		"the host's driver does not work: GPU 0000:3c:00.0 has fallen off the bus",
	},
	"a lost GPU and success": {hostNode, host,
		hostSMI(0,
			"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU",
			gpuLine(1)), "GPU 0000:3b:00.0 has fallen off the bus"},
	"a lost GPU without an address": {hostNode, host,
		hostSMI(0, "Unable to determine the device handle for GPU2: Unknown Error",
			gpuLine(1)), "GPU 2 has fallen off the bus"},
	"a GPU that does not answer": {hostNode, host,
		hostSMI(0, gpuLine(0), "1, [Unknown Error], 580.95.05, 00000000:3C:00.0"),
		`GPU 1 does not answer: nvidia-smi prints "1, [Unknown Error], 580.95.05`},
	"a GPU whose version is an error": {hostNode, host,
		hostSMI(0, "0, GPU-1, ERR!, 00000000:3B:00.0"), `GPU 0 does not answer: nvidia-smi prints "0, GPU-1, ERR!`},
	"a GPU without an address": {hostNode, host,
		hostSMI(0, "3, GPU-1, 580.95.05, [N/A]"), `GPU 3 does not answer: nvidia-smi prints "3, GPU-1, 580.95.05, [N/A]"`},
	"an output that is half a line": {
		hostNode,
		host,
		hostSMI(0, "0, GPU-1"),
		`nvidia-smi prints "0, GPU-1", which is not a GPU's index`,
	},
	"an index that is no number": {
		hostNode,
		host,
		hostSMI(0, "x, GPU-1, 580.95.05, 00000000:3B:00.0"),
		`with the index "x", which is not a number`,
	},
	"no GPU, with success": {
		hostNode,
		host,
		hostSMI(0, "No devices were found"),
		"nvidia-smi succeeds but lists no GPU",
	},
	"an nvidia-smi without a loader": {containerNode, container,
		func(n gpuNode) {
			program(n.T, n.path("driver/usr/bin/nvidia-smi"), "#!/no/such/loader\n")
		}, "the driver container's nvidia-smi cannot be executed; check that its root has the C library"},
	"the driver container's nvidia-smi fails": {containerNode, container,
		func(n gpuNode) { n.smi("driver/usr/bin/nvidia-smi", 9, "NVIDIA-SMI has failed.") },
		"the driver container's driver does not work: /usr/bin/nvidia-smi fails with exit status 9"},
}

// kernelFailures are failures of the modules, the bus and the device nodes.
var kernelFailures = map[string]failure{
	"no module": {
		hostNode,
		host,
		removes("sys/module/nvidia"),
		"the kernel module nvidia is not loaded; check that sysfs",
	},
	"a module that is being unloaded": {containerNode, container, writes("sys/module/nvidia/initstate", "going\n"),
		"the driver container's driver does not work: the kernel module nvidia is not loaded"},
	"no uvm module": {
		hostNode,
		host,
		removes("sys/module/nvidia_uvm"),
		"the kernel module nvidia_uvm is not loaded; CUDA needs it: run nvidia-modprobe -u on the host",
	},
	"no uvm module in the driver container": {containerNode, container, removes("sys/module/nvidia_uvm"),
		"the kernel module nvidia_uvm is not loaded; CUDA needs it: run nvidia-modprobe -u in the driver container"},
	"nvidia-modprobe fails": {hostNode, host, func(n gpuNode) {
		n.remove("sys/module/nvidia_uvm")
		program(n.T, n.path("host/usr/bin/nvidia-modprobe"), "#!/bin/sh\necho 'Key was rejected by service'\nexit 1\n")
	}, `(/usr/bin/nvidia-modprobe fails: exit status 1, output: "Key was rejected by service")`},
	"another version of the module": {hostNode, host, writes("sys/module/nvidia/version", "570.00\n"),
		"nvidia-smi belongs to driver 580.95.05, but the loaded kernel module nvidia has version 570.00; reboot the node"},
	"a GPU that nvidia-smi does not list": {hostNode, host, hostSMI(0, gpuLine(0)),
		"nvidia-smi lists 1 of 2 GPUs: GPU 0000:3c:00.0 has fallen off the bus"},
	"two GPUs that nvidia-smi does not list": {hostNode, host, func(n gpuNode) { n.gpu(2); n.gpu(3) },
		"nvidia-smi lists 2 of 4 GPUs: GPU 0000:3d:00.0, 0000:3e:00.0 has fallen off the bus"},
	"no sysfs": {hostNode, host, removes("sys/bus"), "the GPUs of nvidia-smi cannot be compared with those on the bus"},
	"no control device": {hostNode, host, removes("host/dev/nvidiactl"),
		"the device node /dev/nvidiactl is missing on the host; run nvidia-modprobe -u -c=0 there"},
	"no uvm device": {
		containerNode,
		container,
		removes("driver/dev/nvidia-uvm"),
		"the device node /dev/nvidia-uvm is missing in the driver container",
	},
	"no device of a GPU": {
		hostNode,
		host,
		removes("host/dev/nvidia1"),
		"the device node /dev/nvidia1 is missing on the host",
	},
	"a file in place of a device": {hostNode, host, writes("host/dev/nvidia0", "no device"),
		"/dev/nvidia0 on the host cannot be used: is not a character device; remove it and run nvidia-modprobe"},
	"a device of an earlier module": {hostNode, host, writes("host/dev/nvidia-uvm", "509:0"),
		"the device node /dev/nvidia-uvm on the host has the major number 509, but the loaded module has 510; remove it"},
	"a WSL guest without its device": {
		wslNode,
		host,
		removes("host/dev/dxg"),
		"the WSL guest has no device /dev/dxg",
	},
	"a WSL guest without a GPU": {wslNode, host,
		func(n gpuNode) { n.smi("host/usr/lib/wsl/lib/nvidia-smi", 6, "No devices were found") },
		"/usr/lib/wsl/lib/nvidia-smi fails with exit status 6"},
}

// containerFailures are failures of the driver container, its further modules, and the links.
var containerFailures = map[string]failure{
	"no driver at all": {
		hostNode,
		host,
		removes("host/usr"),
		"there is no nvidia-smi on the host, and no driver container; install a driver",
	},
	"a driver container that is not ready": {containerNode, container, removes("markers/.driver-ctr-ready"),
		"the driver container on this node is not ready (.driver-ctr-ready is missing); see the pod of the driver"},
	"a driver's root that is not mounted": {
		containerNode,
		container,
		removes("driver"),
		"check that /run/nvidia/driver is mounted there with propagation",
	},
	"daemons that are not up": {containerNode, container, writes("markers/.driver-daemons-status", "NotReady\n"),
		`the daemons of the driver container are not up (.driver-daemons-status is "NotReady"); see the log`},
	"no nvidia_fs": {extrasNode, container, removes("sys/module/nvidia_fs"),
		"the driver container has GDS_ENABLED, but the kernel module nvidia_fs is not loaded; see the container " +
			"nvidia-fs-ctr"},
	"no gdrdrv": {extrasNode, container, removes("sys/module/gdrdrv"),
		"the driver container has GDRCOPY_ENABLED, but the kernel module gdrdrv is not loaded; see the container " +
			"nvidia-gdrcopy-ctr"},
	"no nvidia_peermem": {extrasNode, container, removes("sys/module/nvidia_peermem"),
		"the driver container has GPU_DIRECT_RDMA_ENABLED, but the kernel module nvidia_peermem is not loaded; see the " +
			"container nvidia-peermem-ctr"},
	"a value that is no boolean": {
		containerNode,
		container,
		writes("markers/.driver-ctr-ready", "GDS_ENABLED: sure\n"),
		`GDS_ENABLED in .driver-ctr-ready is "sure", which is not a boolean`,
	},
	"a /dev/char that is not mounted": {hostNode, host, removes("host/dev/char"),
		"containers lose their GPUs at a daemon-reload of systemd, cannot be created; mount the host's /dev/char " +
			"read-write, or set DISABLE_DEV_CHAR_SYMLINK_CREATION=true in spec.validator.driver.env: symlink"},
	"a directory in place of a link": {
		hostNode,
		host,
		func(n gpuNode) { n.write("host/dev/char/195:255/x", "") },
		"rename",
	},
	"nvidia-fs": {
		extrasNode,
		module(labels.MarkerNvidiaFS),
		removes("sys/module/nvidia_fs"),
		"the kernel module nvidia_fs is not loaded; see the container nvidia-fs-ctr",
	},
	"gdrcopy": {
		extrasNode,
		module(labels.MarkerGDRCopy),
		removes("sys/module/gdrdrv"),
		"the kernel module gdrdrv is not loaded; see the container nvidia-gdrcopy-ctr",
	},
	"nvidia-peermem": {
		extrasNode,
		module(labels.MarkerPeerMem),
		removes("sys/module/nvidia_peermem"),
		"the kernel module nvidia_peermem is not loaded; see the container nvidia-peermem-ctr",
	},
	"mofed of the host": {
		mofedNode,
		mofed(true),
		removes("sys/module/mlx5_core"),
		"the kernel module mlx5_core is not loaded; install the Mellanox driver on the host",
	},
	"mofed of the network operator": {
		mofedNode,
		mofed(false),
		removes("mofed-ready"),
		"the Mellanox driver on this node is not ready",
	},
	"mofed without sysfs": {
		mofedNode,
		mofed(true),
		removes("sys/bus"),
		"the PCI devices cannot be listed; is sysfs mounted",
	},
}

// pendingFailures are the failures that wait for another component.
var pendingFailures = []string{
	"a driver container that is not ready", "no nvidia_fs", "no gdrdrv", "no nvidia_peermem",
	"mofed of the network operator",
}

func TestEveryFailureHasItsOwnReason(t *testing.T) {
	reasons := map[string]string{}
	for _, table := range []map[string]failure{smiFailures, kernelFailures, containerFailures} {
		for name, tc := range table {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				n := tc.node(t)
				check, companions := tc.check(n)
				_, err := check(t.Context())
				g.Expect(err).NotTo(HaveOccurred(), "without the fault")
				_, err = Run{Companions: companions}.companions(nil)
				g.Expect(err).NotTo(HaveOccurred(), "without the fault")
				n = tc.node(t)
				tc.fault(n)
				check, companions = tc.check(n)

				_, _, err = try(t, check, companions, n.path("markers"))

				g.Expect(err).To(MatchError(isOneSentence(tc.reason)))
				reason := strings.ReplaceAll(err.Error(), n.root, "")
				g.Expect(reasons).NotTo(HaveKey(reason))
				reasons[reason] = name
				_, _, again := try(t, check, companions, n.path("markers"))
				g.Expect(isPending(err)).To(Equal(slices.Contains(pendingFailures, name)))
				g.Expect(again).To(MatchError(err.Error()), "a reason stays the same while the cause is the same")
			})
		}
	}
	t.Logf("%d failures, %d reasons", len(smiFailures)+len(kernelFailures)+len(containerFailures), len(reasons))
	NewWithT(t).Expect(len(reasons)).To(BeNumerically(">=", 40))
}

// isOneSentence matches a reason that contains this part and is one line.
func isOneSentence(part string) types.GomegaMatcher {
	return And(ContainSubstring(part), Not(ContainSubstring("\n")))
}

func TestMOFEDIsNotValidatedWhereItIsNotNeeded(t *testing.T) {
	tests := map[string]struct {
		rdma bool
		node func(*testing.T) gpuNode
		logs string
	}{
		"without RDMA":          {node: mofedNode, logs: "GPUDirect RDMA is not enabled"},
		"without an adapter":    {rdma: true, node: hostNode, logs: "the node has no Mellanox network adapter"},
		"not with both of them": {rdma: true, node: mofedNode},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n := tc.node(t)
			NewWithT(t).Expect(os.RemoveAll(n.path("mofed-ready"))).To(Succeed())
			log := make(lines, 10)
			_, err := MOFED{RDMA: tc.rdma, ReadyFile: n.path("mofed-ready"), SysRoot: n.path("sys"),
				Log: slog.New(slog.NewTextHandler(log, nil))}.Check(t.Context())
			if tc.logs == "" {
				g.Expect(err).To(HaveOccurred())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(log).To(Receive(ContainSubstring(fmt.Sprintf("because=%q", tc.logs))))
		})
	}
}
