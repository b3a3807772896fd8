//go:build linux

package nvidia

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// mpsPrograms are the driver's programs that the daemon of the Multi-Process Service starts.
var mpsPrograms = []string{"nvidia-cuda-mps-control", "nvidia-smi"}

// shares is what the daemon has done.
type shares struct {
	// Ready: it has started all that the configuration asks for.
	Ready bool
	// Served is the resource whose clients are served, with the Threads in percent and the Memory of the last GPU for
	// each. Started marks it in its folder.
	Served, Threads, Memory string
	Started                 bool
	// Mode is the last compute mode that was set.
	Mode string
}

// NVIDIA's MPS daemon and its stand-in serve alike: at their start, with another configuration, and at their end.
func TestTheMPSDaemonsServeAlike(t *testing.T) {
	t.Parallel()
	serving := func(resource, threads, memory string) shares {
		return shares{
			Ready: true, Served: resource, Threads: threads, Memory: memory, Started: true, Mode: "EXCLUSIVE_PROCESS",
		}
	}
	const none, shared = "version: v1\n", "gpu.shared"
	waiting, four := shares{Ready: true}, serving("gpu", "25.0", "20389M")
	released := shares{Ready: true, Mode: "DEFAULT"}
	tests := map[string]struct {
		config, next string
		first, then  shares
	}{
		"nothing is shared": {config: none, first: waiting, next: sharingByMPS(4), then: four},
		"in time slices":    {config: sharing("nvidia.com/gpu", 4, ""), first: waiting, next: none, then: waiting},
		"other shares": {
			config: sharingByMPS(4), first: four, next: sharingByMPS(10), then: serving("gpu", "10.0", "8155M"),
		},
		"no longer": {config: sharingByMPS(4), first: four, next: none, then: released},
		"under another name": {
			config: renamed, first: serving(shared, "25.0", "20389M"), next: renamed, then: serving(shared, "25.0", "20389M"),
		},
	}
	for name, test := range tests {
		for _, of := range []program{{name: "mps-control-daemon"}, {name: "mps-control-daemon", standIn: standIn}} {
			t.Run(fmt.Sprintf("%s, played %t", name, of.standIn != ""), func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				m := newMachine(t, h100)
				config := m.write("config.yaml", test.config)
				p := m.startMPS(of, config)
				g.Eventually(m.shares).WithTimeout(patience).Should(Equal(test.first), p.log.String)
				m.write("config.yaml", test.next)
				if test.then == test.first {
					// That it has begun again is to be seen.
					g.Expect(os.Remove(filepath.Join(m.dir, mpsReady))).To(Succeed())
				}
				g.Expect(p.Process.Signal(syscall.SIGHUP)).To(Succeed())
				g.Eventually(m.shares).WithTimeout(patience).Should(Equal(test.then), p.log.String)
				g.Expect(p.Process.Signal(syscall.SIGTERM)).To(Succeed())
				g.Expect(p.Wait()).To(Succeed(), p.log.String)
				left := shares{Mode: test.then.Mode}
				if test.then.Served != "" {
					left.Mode = "DEFAULT"
				}
				g.Expect(m.shares()).To(Equal(left))
				m.knowsAll()
			})
		}
	}
}

const (
	mpsReady     = "mps/.ready"
	mpsResources = "mps/nvidia.com"
)

// renamed shares GPUs by MPS under another name.
var renamed = strings.Replace(sharingByMPS(4), "mps:\n", "mps:\n    renameByDefault: true\n", 1)

// startMPS starts an MPS daemon. The driver's programs are those of the stand-in.
func (m *machine) startMPS(of program, config string) *process {
	m.t.Helper()
	g := NewWithT(m.t)
	mkdir(g, m.dir, "mps")
	mkdir(g, m.dir, "dev", "shm")
	played, err := os.ReadFile(standIn)
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range mpsPrograms {
		// It starts itself in the background, by its own name: a link would have that of the file.
		m.write(filepath.Join("bin", name), string(played))
	}
	variables := append(renderedVariables(m.t, "mps-control-daemon-shared-gpus", "mps-control-daemon-ctr"),
		"CONFIG_FILE="+config, "PATH="+filepath.Join(m.dir, "bin")+":/usr/bin:/bin")
	p := m.command(m.t.Context(), variables, of)
	// NVIDIA's has a program that follows the log, which outlives it where it is killed.
	p.WaitDelay = time.Second
	g.Expect(p.Start()).To(Succeed())
	m.t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		// The daemon in the background outlives a test that fails.
		_, _ = m.askMPS(m.shares().Served, "quit")
	})
	return p
}

// shares returns what the daemon has done until now.
func (m *machine) shares() shares {
	found := shares{Ready: m.has(mpsReady)}
	if mode, err := os.ReadFile(filepath.Join(m.dir, "proc/driver/nvidia/compute-mode")); err == nil {
		found.Mode = strings.TrimSpace(string(mode))
	}
	for _, resource := range []string{"gpu", "gpu.shared"} {
		found.Started = found.Started || m.has(filepath.Join(mpsResources, resource, ".started"))
		threads, err := m.askMPS(resource, "get_default_active_thread_percentage")
		if err != nil {
			continue
		}
		if memory, err := m.askMPS(resource, fmt.Sprintf("get_default_device_pinned_mem_limit %d", h100.gpus-1)); err == nil {
			found.Served, found.Threads, found.Memory = resource, threads, memory
		}
	}
	return found
}

func (m *machine) has(path string) bool {
	_, err := os.Lstat(filepath.Join(m.dir, path))
	return err == nil
}

// askMPS asks the daemon of a resource, as the program of the driver does.
func (m *machine) askMPS(resource, question string) (answer string, err error) {
	connection, err := net.Dial("unix", filepath.Join(m.dir, mpsResources, resource, "pipe", "control"))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err = fmt.Fprintln(connection, question); err == nil {
		answer, err = bufio.NewReader(connection).ReadString('\n')
	}
	return strings.TrimSpace(answer), err
}
