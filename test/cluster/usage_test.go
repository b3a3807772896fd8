package cluster

import (
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestChildrenCPU: a child's CPU time counts while it runs, and not after it has exited.
func TestChildrenCPU(t *testing.T) {
	g := NewWithT(t)
	before, err := ChildrenCPU()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	g.Eventually(ChildrenCPU).WithTimeout(time.Minute).Should(BeNumerically(">=", before+50*time.Millisecond))
	g.Expect(cmd.Process.Kill()).To(Succeed())
	g.Expect(cmd.Wait()).To(MatchError(ContainSubstring("killed")))
	g.Expect(ChildrenCPU()).To(BeNumerically("<", before+50*time.Millisecond))
}

// TestParseCPU: user and system time are parsed for any program name.
func TestParseCPU(t *testing.T) {
	g := NewWithT(t)
	const stat = "42 (a) b (c) S 7 42 42 0 -1 4194560 100 0 0 0 150 25 9 9 20 0 1 0 100 0 0"
	g.Expect(parseCPU(stat)).To(Equal(1750 * time.Millisecond))
	g.Expect(statFields(stat)[1]).To(Equal("7"), "its parent")
	_, err := parseCPU("42 (a) S 7")
	g.Expect(err).To(MatchError(ContainSubstring("short stat line")))
}
