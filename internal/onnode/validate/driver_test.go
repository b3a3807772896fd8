package validate

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

const (
	works  = "#!/bin/sh\necho '| NVIDIA-SMI 580.95.05 |'\n"
	broken = "#!/bin/sh\necho 'NVIDIA-SMI has failed.'\nexit 9\n"
)

// below is the Runner of these tests: it runs what lies below root without a chroot, which needs
// privileges that tests have not. TestChroot is about the real one.
func below(ctx context.Context, root, path string, args ...string) ([]byte, error) {
	return output(exec.CommandContext(ctx, filepath.Join(root, path), args...))
}

// program writes an executable.
func program(t *testing.T, path, content string) {
	t.Helper()
	write(t, path, content)
	NewWithT(t).Expect(os.Chmod(path, 0o755)).To(Succeed())
}

var (
	hostDriver = []marker.Assignment{
		{Key: "IS_HOST_DRIVER", Value: "true"},
		{Key: "NVIDIA_DRIVER_ROOT", Value: "/"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/host"},
		{Key: "NVIDIA_DEV_ROOT", Value: "/"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/host"},
	}
	containerDriver = []marker.Assignment{
		{Key: "IS_HOST_DRIVER", Value: "false"},
		{Key: "NVIDIA_DRIVER_ROOT", Value: "/run/nvidia/driver"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/driver-root"},
		{Key: "NVIDIA_DEV_ROOT", Value: "/run/nvidia/driver"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/driver-root"},
	}
	containerDriverWithoutDev = []marker.Assignment{
		{Key: "IS_HOST_DRIVER", Value: "false"},
		{Key: "NVIDIA_DRIVER_ROOT", Value: "/run/nvidia/driver"}, {Key: "DRIVER_ROOT_CTR_PATH", Value: "/driver-root"},
		{Key: "NVIDIA_DEV_ROOT", Value: "/"}, {Key: "DEV_ROOT_CTR_PATH", Value: "/host"},
	}
)

func TestDriver(t *testing.T) {
	type files map[string]string // Path to content; a directory where the path ends in a slash.
	tests := map[string]struct {
		files    files
		expected bool
		want     []marker.Assignment
		err      string
	}{
		"takes the host's driver": {
			files: files{"host/usr/bin/nvidia-smi": works}, want: hostDriver},
		"takes the host's driver from the last directory too": {
			files: files{"host/opt/bin/nvidia-smi": works}, want: hostDriver},
		"takes the host's driver though a driver container is expected": {
			files: files{"host/usr/bin/nvidia-smi": works}, expected: true, want: hostDriver},
		"passes over an nvidia-smi that is empty": {
			files: files{"host/usr/bin/nvidia-smi": "", "host/bin/nvidia-smi": works}, want: hostDriver},
		"says what is wrong with the host's driver": {
			files: files{"host/usr/bin/nvidia-smi": broken},
			err:   `the host's driver does not work: /usr/bin/nvidia-smi fails with exit status 9: the driver's kernel module is not loaded; see the kernel log and the driver's log (output: "NVIDIA-SMI has failed.")`},
		"waits for the driver container": {
			files: files{"driver/usr/bin/nvidia-smi": works}, expected: true,
			err: "the driver container on this node is not ready (.driver-ctr-ready is missing); see the pod of the driver on this node"},
		"waits for the driver container though tools are left on the host": {
			files: files{"host/usr/bin/nvidia-smi": broken}, expected: true, err: "is not ready"},
		"takes the driver container's driver": {
			files:    files{"markers/.driver-ctr-ready": "GDS_ENABLED: false\n", "driver/usr/bin/nvidia-smi": works, "driver/dev/": ""},
			expected: true, want: containerDriver},
		"takes the host's /dev where the driver's root has none": {
			files:    files{"markers/.driver-ctr-ready": "", "driver/usr/bin/nvidia-smi": works},
			expected: true, want: containerDriverWithoutDev},
		"takes the driver of somebody else's container": {
			files: files{"driver/usr/bin/nvidia-smi": works, "driver/dev/": ""}, want: containerDriver},
		"says what is wrong with the container's driver": {
			files: files{"markers/.driver-ctr-ready": "", "driver/usr/bin/nvidia-smi": broken}, expected: true,
			err: "the driver container's driver does not work: /usr/bin/nvidia-smi fails with exit status 9"},
		"says that the driver's root is not mounted": {
			files: files{"markers/.driver-ctr-ready": ""}, expected: true, err: "check that /run/nvidia/driver is mounted there"},
		"says that there is no driver at all": {
			err: "there is no nvidia-smi on the host, and no driver container; install a driver"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			for path, content := range tc.files {
				if path[len(path)-1] == '/' {
					g.Expect(os.MkdirAll(filepath.Join(root, path), 0o700)).To(Succeed())
				} else {
					program(t, filepath.Join(root, path), content)
				}
			}
			driver := Driver{HostRoot: root + "/host", DriverRoot: root + "/driver", InstallDir: "/run/nvidia/driver",
				ContainerExpected: tc.expected, MarkersDir: root + "/markers", Run: below}
			got, err := driver.Check(t.Context())
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestTheDriverContainersFileWakesTheProver(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	program(t, root+"/driver/usr/bin/nvidia-smi", works)
	driver := Driver{HostRoot: root + "/host", DriverRoot: root + "/driver", InstallDir: "/run/nvidia/driver",
		ContainerExpected: true, MarkersDir: root + "/markers", Run: below}
	noted := make(chan struct{}, 10)
	// With pauses of an hour only the file itself can be what wakes it.
	run := Run{Component: "driver", Markers: marker.Dir{Path: driver.MarkersDir, BootID: "boot-now"}, Check: driver.Check,
		Interval: time.Hour, MaxInterval: time.Hour, AttemptTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(lines(noted), nil))}
	done := make(chan error, 1)
	go func() { done <- run.Prove(t.Context()) }()
	g.Eventually(noted, "5s").Should(Receive())

	write(t, root+"/markers/tmp", "DRIVER_INSTANCE: pod-1\n")
	g.Expect(os.Rename(root+"/markers/tmp", root+"/markers/.driver-ctr-ready")).To(Succeed())

	g.Eventually(done, "5s").Should(Receive(BeNil()))
	g.Expect(os.ReadFile(root + "/markers/driver-ready")).To(BeEquivalentTo(`IS_HOST_DRIVER=false
NVIDIA_DRIVER_ROOT=/run/nvidia/driver
DRIVER_ROOT_CTR_PATH=/driver-root
NVIDIA_DEV_ROOT=/
DEV_ROOT_CTR_PATH=/host
BOOT_ID=boot-now
DRIVER_INSTANCE=pod-1
`))
}

// lines gets a value for each line of a log.
type lines chan struct{}

func (l lines) Write(line []byte) (int, error) {
	l <- struct{}{}
	return len(line), nil
}

func TestChroot(t *testing.T) {
	g := NewWithT(t)
	out, err := Chroot(t.Context(), "/", "/bin/sh", "-c", "echo $LC_ALL $HOME; exit 15")
	g.Expect(string(out)).To(Equal("C\n"), "only its own environment")
	g.Expect(explain(t.Context(), "nvidia-smi", out, err)).To(MatchError(ContainSubstring("a GPU has fallen off the bus")))

	_, err = Chroot(t.Context(), t.TempDir(), "/usr/bin/nvidia-smi")
	if os.Geteuid() == 0 {
		g.Expect(absent(err)).To(BeTrue(), "nothing of this machine is seen in the chroot: %v", err)
		return
	}
	g.Expect(err).To(MatchError(syscall.EPERM))
	g.Expect(explain(t.Context(), "nvidia-smi", nil, err)).To(MatchError(ContainSubstring("the container must be privileged")))
}
