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

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/process"
)

// parentVariable makes the test's program the parent of TestAChildDiesWithItsParent.
const parentVariable = "TEST_PROCESS_PARENT"

func TestAChildDiesWithItsParent(t *testing.T) {
	g := NewWithT(t)
	if os.Getenv(parentVariable) != "" {
		child := exec.Command("sleep", "1000")
		g.Expect(process.Start(child)).To(Succeed())
		if _, err := os.Stdout.WriteString(strconv.Itoa(child.Process.Pid) + "\n"); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a signal at the death of a parent")
	}
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(process.Start(parent)).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	child, err := strconv.Atoi(strings.TrimSpace(line))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(alive(child)).To(BeTrue())

	g.Expect(parent.Process.Kill()).To(Succeed())
	g.Eventually(func() bool { return alive(child) }, "5s").Should(BeFalse())
	_ = parent.Wait()
}

// alive tells whether a process runs; a zombie, which nobody here waits for, does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
