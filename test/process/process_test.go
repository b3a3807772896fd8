package process_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/process"
)

// parentVariable makes the test's program the parent of TestAChildDiesWithItsParent.
const parentVariable = "TEST_PROCESS_PARENT"

func TestAChildDiesWithItsParent(t *testing.T) {
	checkDiesWithItsParent(t, func(_ *WithT) (int, error) {
		child := exec.Command("sleep", "1000")
		err := process.Start(child)
		return child.Process.Pid, err
	})
}

func TestALaunchedProgramDiesWithItsParent(t *testing.T) {
	checkDiesWithItsParent(t, func(g *WithT) (int, error) {
		child := exec.Command(newLauncher(g, t.TempDir(), "sleep", os.TempDir(), nil).Path, "1000")
		var err error
		process.OnLastingThread(func() { err = child.Start() })
		return child.Process.Pid, err
	})
}

// checkDiesWithItsParent runs the test again, as a separate process that starts a child, and kills that process.
func checkDiesWithItsParent(t *testing.T, start func(*WithT) (pid int, err error)) {
	t.Helper()
	g := NewWithT(t)
	if os.Getenv(parentVariable) != "" {
		pid, err := start(g)
		g.Expect(err).NotTo(HaveOccurred())
		if _, err := os.Stdout.WriteString(strconv.Itoa(pid) + "\n"); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+t.TempDir())
	out, err := parent.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(process.Start(parent)).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	child, err := strconv.Atoi(strings.TrimSpace(line))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(alive(child)).To(BeTrue())

	g.Expect(parent.Process.Kill()).To(Succeed())
	g.Eventually(func() bool { return alive(child) }, "1m").Should(BeFalse())
	_ = parent.Wait()
}

// A launched program gets the arguments, the folder and the variables, and can be signalled.
func TestALauncherRunsItsProgram(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("GREETING", "inherited")
	at, dir := t.TempDir(), t.TempDir()
	launcher := newLauncher(g, at, "sh", dir, map[string]string{"GREETING": "given"})
	g.Expect(launcher.Signal(0)).To(MatchError(os.ErrProcessDone), "it has not started yet")

	child := exec.Command(launcher.Path, "-c", `pwd; echo "$GREETING $1"; exec sleep 1000`, "sh", "argument")
	out, err := child.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	process.OnLastingThread(func() { g.Expect(child.Start()).To(Succeed()) })
	lines := bufio.NewReader(out)
	for _, want := range []string{dir, "given argument"} {
		line, err := lines.ReadString('\n')
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(line).To(Equal(want + "\n"))
	}
	g.Expect(launcher.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(child.Wait()).To(MatchError(ContainSubstring(syscall.SIGTERM.String())))
	g.Expect(launcher.Signal(0)).To(MatchError(os.ErrProcessDone), "it has exited")
}

// Starts on lasting threads do not wait for each other.
func TestLastingThreadsRunInParallel(t *testing.T) {
	meeting, met := make(chan bool), make(chan bool)
	go process.OnLastingThread(func() { meeting <- true })
	go process.OnLastingThread(func() { <-meeting; close(met) })
	NewWithT(t).Eventually(met, time.Minute).Should(BeClosed())
}

// newLauncher makes a launcher of a program on the PATH.
func newLauncher(g *WithT, at, name, dir string, env map[string]string) *process.Launcher {
	program, err := exec.LookPath(name)
	g.Expect(err).NotTo(HaveOccurred())
	launcher, err := process.NewLauncher(at, program, dir, env)
	g.Expect(err).NotTo(HaveOccurred())
	return launcher
}

// alive reports whether a process runs; a zombie, which this program does not wait for, does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
