//go:build linux

package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
)

// checkMemoryAtRest checks the operators' memory while a policy is ready against its limit: the memory of their
// cgroups, without the files that the kernel could drop immediately, like the kubelet.
func (b *env) checkMemoryAtRest() {
	var used map[int]int64
	b.Eventually(func(g Gomega) {
		used = map[int]int64{}
		for _, pid := range b.machine.Processes(operatorProgram) {
			used[pid] = workingSet(g, pid)
		}
		g.Expect(used).To(HaveLen(2))
		g.Expect(used).To(HaveEach(BeNumerically("<=", mostMemory)))
	}, "60s", "1s").Should(Succeed())
	for pid, bytes := range used {
		b.t.Logf("the operator of process %d has %.1f MB", pid, float64(bytes)/(1<<20))
	}
}

// cgroupOf returns where the cgroup of a process lies in the hierarchy of a controller.
func cgroupOf(g Gomega, pid int, controller string) string {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	g.Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), controller) {
			return filepath.Join("/sys/fs/cgroup", fields[1], fields[2])
		}
	}
	g.Expect(string(groups)).To(BeEmpty(), "no hierarchy has the controller %s", controller)
	return ""
}

// figure returns the number in a file of a cgroup.
func figure(g Gomega, group, file string) int64 {
	content, err := os.ReadFile(filepath.Join(group, file))
	g.Expect(err).NotTo(HaveOccurred())
	number, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	g.Expect(err).NotTo(HaveOccurred())
	return number
}

// usedCPU returns the CPU time that the cgroup of a process has used.
func usedCPU(g Gomega, pid int) time.Duration {
	return time.Duration(figure(g, cgroupOf(g, pid, "cpuacct"), "cpuacct.usage"))
}

// resident returns the resident memory of a process, with the pages of its program that other processes share.
func resident(g Gomega, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	g.Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			g.Expect(err).NotTo(HaveOccurred())
			return kilobytes << 10
		}
	}
	g.Expect(string(status)).To(BeEmpty(), "no line has the resident memory")
	return 0
}

// workingSet returns the working set of the cgroup of a process.
func workingSet(g Gomega, pid int) int64 {
	dir := cgroupOf(g, pid, "memory")
	statistics, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	g.Expect(err).NotTo(HaveOccurred())
	inactive := int64(-1)
	for line := range strings.Lines(string(statistics)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "total_inactive_file "); ok {
			inactive, err = strconv.ParseInt(value, 10, 64)
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
	g.Expect(inactive).To(BeNumerically(">=", 0), "%s", statistics)
	return figure(g, dir, "memory.usage_in_bytes") - inactive
}

// killOperators kills both operators while the stack comes back: once the driver is validated, and before all is.
func (b *env) killOperators(begin time.Time) {
	b.t.Helper()
	validated := func(marker string) bool {
		info, err := os.Stat(b.machine.Running("/run/nvidia/validations/" + marker))
		return err == nil && info.ModTime().After(begin)
	}
	var operators []int
	b.Eventually(func(g Gomega) {
		g.Expect(validated("driver-ready")).To(BeTrue())
		operators = b.machine.Processes(operatorProgram)
		g.Expect(operators).To(HaveLen(2))
	}, "90s", "20ms").Should(Succeed(), b.describe)
	b.Expect(validated("plugin-ready")).To(BeFalse(), "the stack is not complete when the operators are killed")
	for _, pid := range operators {
		b.Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
	}
	b.t.Logf("both operators were killed after %s", since(begin))
}
