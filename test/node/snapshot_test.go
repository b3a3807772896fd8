//go:build linux

package node_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// snapshot is what is on the machine: files (sockets among them) and mounts by their paths, programs that run with how
// many times, the handlers that the container runtime has loaded, as the kubelet reports them, and what the Node has.
type snapshot struct {
	Files, Mounts map[string]string
	Processes     map[string]int
	Handlers      []string
	Labels        map[string]string
	Taints        []corev1.Taint
	Conditions    int
}

// excluded are the paths of which a snapshot has neither files nor mounts.
var excluded = []string{
	// Of the kernel, and of this computer.
	"/proc", "/sys", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/[^l]*", "/usr/lib*",
	// Containers, images and networks of containers: the kubelet removes what is not used any more after a while. The
	// containers that run are in the processes.
	"/run/containerd", "/var/lib/containerd", "/run/netns", "/run/cni",
	"/var/lib/kubelet/pods", "/var/lib/kubelet/*_state", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
	"/var/log",
	// The machine's own, and the journals and orders of the stand-ins.
	"/opt/node", "/run/machine", "/var/lib/stand-in*",
}

// isExcluded reports whether a path, or a directory above it, is excluded.
func isExcluded(name string) bool {
	for ; name != "/"; name = filepath.Dir(name) {
		for _, pattern := range excluded {
			if matches, _ := filepath.Match(pattern, name); matches {
				return true
			}
		}
	}
	return false
}

// awaitSnapshot returns what is on the machine once the operator runs, before there is a policy.
func (b *env) awaitSnapshot() snapshot {
	b.t.Helper()
	var before snapshot
	b.Eventually(func(g Gomega) {
		before = b.takeSnapshot(g)
		g.Expect(before.Processes).To(HaveKeyWithValue("gpu-operator", 2))
		g.Expect(before.Handlers).NotTo(BeEmpty())
	}, "30s", "500ms").Should(Succeed())
	return before
}

// takeSnapshot returns what is on the machine now.
func (b *env) takeSnapshot(g Gomega) snapshot {
	root := b.machine.Running("")
	taken := snapshot{Files: map[string]string{}, Mounts: map[string]string{}, Processes: map[string]int{}}
	g.Expect(filepath.WalkDir(root+"/", func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Join("/", strings.TrimPrefix(path, root))
		switch {
		case isExcluded(name) && entry != nil && entry.IsDir():
			return fs.SkipDir
		case isExcluded(name):
			return nil
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		}
		taken.Files[name] = describeFile(path, entry)
		return nil
	})).To(Succeed())
	text, err := os.ReadFile(b.machine.Running("/proc/1/mounts"))
	g.Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); !isExcluded(fields[1]) {
			taken.Mounts[fields[1]] += fields[0] + " " + fields[2] + ";"
		}
	}
	programs, err := filepath.Glob(b.machine.Running("/proc/[0-9]*/comm"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, program := range programs {
		name, err := os.ReadFile(program)
		if err == nil { // Else it has ended.
			taken.Processes[strings.TrimSpace(string(name))]++
		}
	}
	object, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, handler := range object.Status.RuntimeHandlers {
		taken.Handlers = append(taken.Handlers, handler.Name)
	}
	slices.Sort(taken.Handlers)
	taken.Labels, taken.Taints, taken.Conditions = object.Labels, object.Spec.Taints, len(object.Status.Conditions)
	return taken
}

// describeFile returns type, permissions and content of a file.
func describeFile(path string, entry fs.DirEntry) string {
	info, err := entry.Info()
	if err != nil {
		return "gone"
	}
	text := info.Mode().String()
	switch {
	case info.Mode().IsRegular():
		content, err := os.ReadFile(path)
		if err != nil {
			return text + err.Error()
		}
		return text + fmt.Sprintf(" %x", sha256.Sum256(content))
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(path)
		return text + " " + target
	}
	return text
}
