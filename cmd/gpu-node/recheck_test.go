package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// TestRecheckEndsWithTheLoss: of two GPUs that were validated one is left. The exit code has the number of lost GPUs,
// and the termination message names them.
func TestRecheckEndsWithTheLoss(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	write := func(path, content string) string {
		path = filepath.Join(dir, path)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}
	const left, lost = "0000:3b:00.0", "0000:3c:00.0"
	write("sys/bus/pci/devices/"+left+"/vendor", "0x10de\n")
	write("sys/bus/pci/devices/"+left+"/class", "0x030200\n")
	g.Expect(os.Symlink("../drivers/nvidia", filepath.Join(dir, "sys/bus/pci/devices", left, "driver"))).To(Succeed())
	write("proc/driver/nvidia/gpus/"+left+"/information", "Device Minor: 0\n")
	boot, message := write("boot_id", "boot-1\n"), write("message", "")
	state := write("presence.json", `{"boot": "boot-1", "bound": ["`+left+`", "`+lost+`"], "listed": {"`+left+
		`": "0", "`+lost+`": "1"}}`)
	markers := marker.Dir{Path: dir, BootID: "boot-1"}
	g.Expect(markers.Write(labels.MarkerDriver, nil, "")).To(Succeed())
	out, err := exec.CommandContext(t.Context(), gpuNode, "recheck", "--dir="+dir, "--boot-id-file="+boot,
		"--sys-root="+filepath.Join(dir, "sys"), "--proc-root="+filepath.Join(dir, "proc"), "--dev-root="+dir,
		"--state-file="+state, "--termination-log="+message).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	g.Expect(errors.As(err, &exit)).To(BeTrue(), string(out))
	g.Expect(exit.ExitCode()).To(Equal(65), string(out))
	g.Expect(os.ReadFile(message)).To(BeEquivalentTo("1 of 2 GPUs lost since the validation: 0000:3c:00.0 is not " +
		"bound to the driver on the bus; see the kernel log, and reset the GPU or reboot the node\n"))
}
