package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// The SIGTERM comes between the moment from which gpu-node listens for it and that at which it executes the command:
// while it reads the boot ID, with a marker that is valid immediately.
func TestExecDoesNotStartTheCommandOfAPodThatEnds(t *testing.T) {
	g := NewWithT(t)
	pod, out := newPod(t), filepath.Join(t.TempDir(), "out")
	pod.put(t, "driver-ready", "")
	bootID := filepath.Join(t.TempDir(), "boot_id")
	g.Expect(syscall.Mkfifo(bootID, 0o600)).To(Succeed())
	command := pod.command(t, "exec", "--boot-id-file="+bootID, "--", "sh", "-c", `echo started >"$0"`, out)
	g.Expect(command.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()

	opened := make(chan *os.File, 1)
	go func() {
		// Blocks until gpu-node reads.
		if file, err := os.OpenFile(bootID, os.O_WRONLY, 0); err == nil {
			opened <- file
		}
	}()
	var file *os.File
	g.Eventually(opened, "1m").Should(Receive(&file))
	g.Expect(command.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Eventually(func() (string, error) { return pending(command.Process.Pid) }, "1m").
		Should(MatchRegexp("^0+$"), "the handler has it")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = file.Write(boot)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Close()).To(Succeed())

	g.Eventually(ended, "1m").Should(Receive())
	g.Expect(out).NotTo(BeAnExistingFile())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(pod.message(t)).To(Equal("terminated signal received before sh was started\n"))
}

// pending returns the signals that the process has not received yet, in hexadecimal digits.
func pending(pid int) (string, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	_, after, found := strings.Cut(string(status), "ShdPnd:")
	if !found {
		return "", fmt.Errorf("there is no ShdPnd in %s", status)
	}
	return strings.Fields(after)[0], nil
}
