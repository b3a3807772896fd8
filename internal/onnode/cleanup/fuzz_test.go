package cleanup_test

import (
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
)

// mayGo matches the paths that a run may remove, in words of its own: every other path must stay as it is.
var mayGo = regexp.MustCompile(`^(` + strings.Join([]string{
	`run/nvidia(/.*)?`, `run/nvidia-fabricmanager(/(socket|nv-fabricmanager\.pid))?`, `run/nvidia-topologyd`,
	`run/mellanox(/drivers(/usr(/src)?)?)?`, `run/containers(/oci(/hooks\.d(/oci-nvidia-hook\.json)?)?)?`, `run/nri`,
	`(run|etc)/cdi(/(management|k8s\.device-plugin)\.nvidia\.com-[^/]*\.(yaml|json))?`,
	`usr/local/nvidia(/toolkit(/.*)?)?`, `etc/containerd(/conf\.d(/99-nvidia\.toml)?)?`,
	`etc/crio(/crio\.conf\.d(/99-nvidia\.conf)?)?`, `etc/docker`,
	`etc/kubernetes(/node-feature-discovery(/features\.d(/gfd(-tmp(/gfd-[^/]*)?)?)?)?)?`,
	`var/lib/kubelet/device-plugins/nvidia-[^/]*\.sock`, `dev/char/\d+:\d+`, `dev/log`,
}, "|") + `)$`)

// Names of which hosts are made: of the stack's list, near it, and neither.
var (
	dirs = []string{
		"run/nvidia", "run/nvidia/validations", "run/nvidia/toolkit", "run/nvidia/mps/nvidia.com/gpu/log", "run/cdi",
		"etc/cdi",
		"run/nvidia/driver/lib/firmware/nvidia/1", "usr/local/nvidia", "usr/local/nvidia/toolkit", "usr/local", "etc",
		"usr/local/nvidia/toolkit/.config/nvidia-container-runtime", "etc/containerd/conf.d", "etc/kubernetes",
		"etc/kubernetes/node-feature-discovery/features.d", "var/lib/kubelet/device-plugins", "dev/char", "run", "home",
		"dev",
		"run/nvidia-fabricmanager", "run/mellanox/drivers", "var/lib/kubelet",
	}
	names = []string{
		"driver-ready", "cuda.reason", "toolkit.pid", "nvidia-ctk", "config.toml", "99-nvidia.toml", "gfd", "a.bin", "x",
		"management.nvidia.com-gpu.yaml", "nvidia.yaml", "nvidia-gpu.sock", "kubelet.sock", "195:0", "1:3", ".ready", "notes",
		"nvidia-driver.state", "libnvidia-container.so.1", "..data", "[a]", "nvidia", "toolkit", "*", "log",
	}
	contents = []string{"", "kind: management.nvidia.com/gpu", dropIn, "nvidia.com/gpu.count=1", "secret"}
	targets  = []string{"../nvidia0", "/etc", "/home", "../../..", ".", "/run/nvidia/driver/dev/nvidia0", "x", "/"}
)

// FuzzOnlyTheListChanges makes hosts from random names, types and contents.
func FuzzOnlyTheListChanges(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g, host, random := NewWithT(t), newTree(t), rand.New(rand.NewPCG(seed, 1))
		one := func(from []string) string { return from[random.IntN(len(from))] }
		for range 40 {
			host.random(random, path.Join(one(dirs), one(names)), one(contents), one(targets))
		}
		before := host.files()
		report, err := cleanup.Run(host.options())
		g.Expect(err).NotTo(HaveOccurred())
		after := host.files()
		for name, content := range before {
			if now, exists := after[name]; exists {
				g.Expect(now).To(Equal(content), "%s has changed", name)
				continue
			}
			g.Expect(mayGo.MatchString(name)).To(BeTrue(), "%s is gone", name)
			g.Expect(report.Removed).To(ContainElement("/" + name))
		}
		g.Expect(len(after)).To(BeNumerically("<=", len(before)), "nothing is made")
		again, err := cleanup.Run(host.options())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again.Removed).To(BeEmpty())
		g.Expect(again.Left).To(Equal(report.Left))
	})
}

// random makes a file, a directory or a link, unless something is in the way.
func (h *tree) random(random *rand.Rand, name, content, target string) {
	h.Helper()
	for dir := name; dir != "."; dir = path.Dir(dir) {
		info, err := os.Lstat(h.path(dir))
		if err == nil && (dir == name || !info.IsDir()) {
			return
		}
	}
	switch random.IntN(6) {
	case 0:
		h.link(target, name)
	case 1:
		h.dir(name)
	default:
		h.write(name, content)
	}
}
