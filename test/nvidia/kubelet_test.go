//go:build linux

package nvidia

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// pluginDir is where a machine has the sockets of the kubelet and of its device plugins.
const pluginDir = "/var/lib/kubelet/device-plugins"

// patience is how long a test waits for what must come.
const patience = time.Minute

// event is a line that the played kubelet prints; the stand-in has the same.
type event struct {
	Resource  string
	Devices   map[string]string
	NUMA      map[string]int64
	Gone      bool
	Allocated *allocated
	Preferred []string
	Error     string
}

// allocated is what a container gets from a device plugin.
type allocated struct {
	Envs    map[string]string `json:"envs"`
	Devices []struct {
		Container   string `json:"container_path"`
		Host        string `json:"host_path"`
		Permissions string `json:"permissions"`
	} `json:"devices"`
	Mounts []struct {
		Container string `json:"container_path"`
		Host      string `json:"host_path"`
	} `json:"mounts"`
	Annotations map[string]string `json:"annotations"`
	CDI         []struct {
		Name string `json:"name"`
	} `json:"cdi_devices"`
}

// served is a device plugin with its kubelet.
type served struct {
	*machine
	events chan event
	orders io.WriteCloser
	plugin *process
	ended  chan struct{}
}

// program is a device plugin: NVIDIA's, or the stand-in by its path.
type program struct{ name, standIn string }

var nvidias = program{name: "nvidia-device-plugin"}

// serve starts a kubelet and a device plugin.
func (m *machine) serve(of program, variables ...string) *served {
	m.t.Helper()
	g := NewWithT(m.t)
	ctx, cancel := context.WithCancel(m.t.Context())
	m.t.Cleanup(cancel)
	kubelet := exec.CommandContext(ctx, standIn)
	kubelet.Args = []string{"kubelet", m.dir + pluginDir}
	kubelet.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	kubelet.Stderr = os.Stderr
	orders, err := kubelet.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	printed, err := kubelet.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kubelet.Start()).To(Succeed())
	s := &served{machine: m, events: make(chan event, 100), orders: orders, ended: make(chan struct{})}
	go func() {
		defer close(s.events)
		lines := bufio.NewScanner(printed)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var one event
			if json.Unmarshal(lines.Bytes(), &one) == nil {
				s.events <- one
			}
		}
	}()
	// It listens when it has made its socket.
	socket := func() string { return filepath.Join(m.dir+pluginDir, "kubelet.sock") }
	g.Eventually(socket).WithTimeout(patience).Should(BeAnExistingFile())
	s.plugin = m.command(ctx, append([]string{
		"DRIVER_ROOT_CTR_PATH=" + m.root, "NVIDIA_DRIVER_ROOT=/run/nvidia/driver", "DEV_ROOT_CTR_PATH=/", "NVIDIA_DEV_ROOT=/",
	}, variables...), of)
	g.Expect(s.plugin.Start()).To(Succeed())
	go func() { defer close(s.ended); _ = s.plugin.Wait() }()
	m.t.Cleanup(func() {
		cancel()
		_ = orders.Close()
		<-s.ended
		_ = kubelet.Wait()
	})
	return s
}

// next returns the next event that is one of these.
func (s *served) next(wanted func(event) bool) event {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case one, open := <-s.events:
			if !open {
				s.t.Fatalf("the kubelet has ended\n%s", s.plugin.log)
			}
			if wanted(one) {
				return one
			}
		case <-s.ended:
			s.t.Fatalf("the device plugin has ended: %s\n%s", s.plugin.ProcessState, s.plugin.log)
		case <-deadline:
			s.t.Fatalf("the device plugin has not done it in %s\n%s", patience, s.plugin.log)
		}
	}
}

// listens waits until the plugin listens to the events of the devices of as many resources: it does so some time after
// it has advertised them, and earlier events are lost.
func (s *served) listens(resources int) {
	s.t.Helper()
	NewWithT(s.t).Eventually(func() int {
		return strings.Count(s.plugin.log.String(), "Ignoring the following XIDs")
	}, patience, "50ms").Should(BeNumerically(">=", resources), s.plugin.log.String)
}

// advertised waits for what the plugin advertises: the devices of as many resources, by their names.
func (s *served) advertised(resources int) map[string]event {
	s.t.Helper()
	found := map[string]event{}
	for len(found) < resources {
		one := s.next(func(e event) bool { return e.Devices != nil })
		found[strings.TrimPrefix(one.Resource, "nvidia.com/")] = one
	}
	return found
}

// allocate makes the plugin give devices to a container.
func (s *served) allocate(resource string, ids ...string) event {
	s.t.Helper()
	return s.order(map[string]any{"Resource": "nvidia.com/" + resource, "IDs": ids})
}

// prefer makes the plugin choose some of the devices.
func (s *served) prefer(resource string, size int, ids ...string) []string {
	s.t.Helper()
	return s.order(map[string]any{"Resource": "nvidia.com/" + resource, "IDs": ids, "Size": size}).Preferred
}

func (s *served) order(order map[string]any) event {
	s.t.Helper()
	g := NewWithT(s.t)
	line, err := json.Marshal(order)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = s.orders.Write(append(line, '\n'))
	g.Expect(err).NotTo(HaveOccurred())
	return s.next(func(e event) bool { return e.Devices == nil && !e.Gone })
}

// end waits until the plugin has ended, and returns its exit code and what it printed.
func (s *served) end() result {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("the device plugin has not ended in %s\n%s", patience, s.plugin.log)
	}
	return result{Code: s.plugin.ProcessState.ExitCode(), Output: s.plugin.log.String()}
}

// rendered are the variables that the operator sets in the container of the device plugin, with CDI or without, beside
// those that gpu-node reads from the marker.
func rendered(t *testing.T, cdi bool, strategy string) []string {
	t.Helper()
	manifest := "device-plugin-without-cdi"
	if cdi {
		manifest = "device-plugin-default"
	}
	variables := renderedVariables(t, manifest, "nvidia-device-plugin")
	if strategy != "" {
		variables = append(variables, "MIG_STRATEGY="+strategy)
	}
	return variables
}

// renderedVariables are those of a container in a golden manifest that have a value there. A later one of the same name
// replaces each, as in Kubernetes.
func renderedVariables(t *testing.T, manifest, container string) []string {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile("../../internal/stack/render/testdata/" + manifest + ".golden.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var variables []string
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var ds appsv1.DaemonSet
		g.Expect(yaml.Unmarshal([]byte(document), &ds)).To(Succeed())
		for _, c := range ds.Spec.Template.Spec.Containers {
			for _, variable := range c.Env {
				if c.Name == container && variable.ValueFrom == nil {
					variables = append(variables, variable.Name+"="+variable.Value)
				}
			}
		}
	}
	g.Expect(variables).NotTo(BeEmpty(), "%s of %s", container, manifest)
	return variables
}
