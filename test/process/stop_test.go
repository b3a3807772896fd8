package process

import (
	"os/exec"
	"syscall"
	"testing"
)

// A process that works counts as stopped once SIGSTOP has taken effect, and one that is gone does, too.
func TestAwaitStop(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if isStopped(pid) {
		t.Error("a process that works counts as stopped")
	}
	for range 20 {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		AwaitStop(pid)
		if !isStopped(pid) {
			t.Error("the process works after SIGSTOP")
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // It was killed.
	if !isStopped(pid) {
		t.Error("a process that is gone works")
	}
}
