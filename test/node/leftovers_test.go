//go:build linux

package node_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
	"github.com/clusterpolicy/gpu-operator/test/process"
)

// victimVariable makes TestNothingIsLeft the run that it watches.
const victimVariable = "TEST_NODE_VICTIM"

// TestNothingIsLeft starts runs in which a container runs, ends them in every possible way, and checks what they leave.
// Each is a process of its own.
func TestNothingIsLeft(t *testing.T) {
	if os.Getenv(victimVariable) != "" {
		beVictim(t)
		return
	}
	cluster.SkipInSample(t)
	before := mounts(t)
	for _, tc := range []struct {
		name string
		end  func(g *WithT, v *victim)
		// next means that the next run has to clean up.
		next bool
	}{
		{name: "ended by itself", end: func(g *WithT, v *victim) {
			g.Expect(v.stdin.Close()).To(Succeed())
			g.Expect(v.cmd.Wait()).To(Succeed())
		}},
		{name: "killed", end: func(_ *WithT, v *victim) { v.kill() }},
		{name: "killed with its watcher", next: true, end: func(g *WithT, v *victim) {
			watchers := processesOf(v.dir, "watcher")
			g.Expect(watchers).To(HaveLen(1))
			g.Expect(syscall.Kill(watchers[0], syscall.SIGKILL)).To(Succeed())
			v.kill()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			v := startVictim(t)
			g.Expect(processesOf(v.dir, "machine")).NotTo(BeEmpty())
			g.Expect(cgroups(v.dir)).NotTo(BeEmpty())
			tc.end(g, v)
			if tc.next {
				// The kernel may take as long to end them as a run that cleans up allows.
				g.Eventually(func() []string { return states(processesOf(v.dir, "")) }, "30s", "20ms").Should(BeEmpty())
				g.Expect(v.dir).To(BeADirectory())
				other := startVictim(t)
				g.Expect(other.stdin.Close()).To(Succeed())
				g.Expect(other.cmd.Wait()).To(Succeed())
			}
			g.Eventually(func(g Gomega) {
				g.Expect(processesOf(v.dir, "")).To(BeEmpty())
				g.Expect(cgroups(v.dir)).To(BeEmpty())
				g.Expect(v.dir).NotTo(BeADirectory())
			}, "20s", "20ms").Should(Succeed())
			g.Expect(mounts(t)).To(Equal(before))
		})
	}
}

// beVictim runs a machine until its standard input ends. It does not clean up.
func beVictim(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Version: cluster.Newest, Address: node.Address})
	g.Expect(err).NotTo(HaveOccurred())
	machine, err := node.New(machineOptions(t, c))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machine.PowerOn(ctx)).To(Succeed())
	g.Expect(machine.Import(ctx, bytes.NewReader(archive(g, echo())))).To(Succeed())
	fmt.Println(node.Dir())
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

type victim struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	dir   string
}

func startVictim(t *testing.T) *victim {
	t.Helper()
	g := NewWithT(t)
	v := &victim{cmd: exec.Command("/proc/self/exe", "-test.run=^TestNothingIsLeft$")}
	v.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GPU_OPERATOR_NODE_")
	}), victimVariable+"=1")
	v.cmd.Stderr = os.Stderr
	in, err := v.cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	out, err := v.cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	v.stdin = in
	g.Expect(process.Start(v.cmd)).To(Succeed())
	lines := bufio.NewScanner(out)
	g.Expect(lines.Scan()).To(BeTrue())
	v.dir = lines.Text()
	g.Expect(v.dir).To(BeADirectory())
	return v
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// processesOf returns the processes that were started in the folder as this part, or as any.
func processesOf(dir, part string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []int
	for _, path := range paths {
		environment, err := os.ReadFile(path)
		if err != nil {
			continue // It has ended.
		}
		variables := strings.Split(string(environment), "\x00")
		if !slices.Contains(variables, "GPU_OPERATOR_NODE_DIR="+dir) ||
			part != "" && !slices.Contains(variables, "GPU_OPERATOR_NODE_PART="+part) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// states returns what these processes run, and their states.
func states(pids []int) []string {
	var found []string
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/", pid)
		command, _ := os.ReadFile(dir + "cmdline")
		status, err := os.ReadFile(dir + "status")
		if err != nil {
			continue // It has ended.
		}
		waits, _ := os.ReadFile(dir + "wchan")
		state := regexp.MustCompile(`(?m)^(State|PPid|Threads):.*$`).FindAllString(string(status), -1)
		found = append(found,
			fmt.Sprintf("%d %q %q waits in %s", pid, strings.ReplaceAll(string(command), "\x00", " "), state, waits))
	}
	return found
}

func cgroups(dir string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
	return found
}

func mounts(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
