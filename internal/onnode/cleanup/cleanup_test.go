package cleanup_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
)

func TestAHostIsAsBeforeTheStack(t *testing.T) {
	for name, prepare := range map[string]func(*tree){
		"with all that the stack makes":          (*tree).stack,
		"with a part of it, as after a lost pod": func(h *tree) { h.write("run/nvidia/validations/driver-ready", "") },
		"with a copy of the MIG manager": func(h *tree) {
			h.write("usr/local/nvidia/mig-manager/config.yaml", "")
		},
		"without any of it":                         func(*tree) {},
		"with directories that pods have mounted":   func(h *tree) { h.dir("run/nvidia/validations"); h.dir("run/cdi") },
		"with links of a driver that is not loaded": func(h *tree) { h.link("../nvidia0", "dev/char/195:0") },
	} {
		t.Run(name, func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			before := host.files()
			prepare(host)
			report := host.clean()
			g.Expect(report.Left).To(BeEmpty())
			g.Expect(report.Text(4000)).To(BeEmpty())
			g.Expect(host.files()).To(Equal(before))

			again := host.clean()
			g.Expect(again.Removed).To(BeEmpty())
			g.Expect(again.Left).To(BeEmpty())
		})
	}
}

// Programs that run in the root of the operating system have their directories there, where the kubelet has another.
func TestFilesInAnotherRootOfTheOperatingSystem(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.write("mnt/os/opt/keep", "")
	before := host.files()
	host.write("mnt/os/opt/gpu/mig-manager/nvidia-mig-parted", "")
	options := host.options()
	options.RootFS, options.ToolkitInstallDir = "/mnt/os", "/opt/gpu"
	_, err := cleanup.Run(options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(host.files()).To(Equal(before))
}

// A directory that the policy names for the driver is removed once it is empty, and nothing beside it.
func TestTheDirectoryOfTheDriver(t *testing.T) {
	for _, install := range []string{"/opt/driver", "/run/nvidia/other"} {
		g, host := NewWithT(t), newTree(t)
		host.operatingSystem()
		host.write("opt/keep", "")
		before := host.files()
		host.dir(strings.TrimPrefix(install, "/"))
		options := host.options()
		options.DriverInstallDir = install
		report, err := cleanup.Run(options)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(report.Removed).To(ContainElement(install))
		g.Expect(host.files()).To(Equal(before))
	}
}

// The directories of the operating system are links on some hosts.
func TestLinksAboveTheStackAreFollowedWithinTheHost(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	g.Expect(os.RemoveAll(host.path("usr/local"))).To(Succeed())
	host.link("../var/usrlocal", "usr/local")
	host.write("var/usrlocal/nvidia/toolkit/nvidia-ctk", "")
	host.write("run/cdi/management.nvidia.com-gpu.yaml", "kind: management.nvidia.com/gpu\n")
	report := host.clean()
	g.Expect(report.Removed).To(ConsistOf("/run/cdi/management.nvidia.com-gpu.yaml", "/run/cdi",
		"/var/usrlocal/nvidia/toolkit/nvidia-ctk", "/var/usrlocal/nvidia/toolkit", "/var/usrlocal/nvidia"))
}

// left matches what stays: paths with a part of the reason.
func left(pairs ...string) types.GomegaMatcher {
	var all []any
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, And(HaveField("Path", pairs[i]), HaveField("Why", ContainSubstring(pairs[i+1]))))
	}
	return ConsistOf(all...)
}

func TestWhatStaysAndWhy(t *testing.T) {
	const toolkitDir = "usr/local/nvidia/toolkit"
	for name, test := range map[string]struct {
		prepare func(*tree)
		// stays are the paths that are still there.
		stays []string
		left  types.GomegaMatcher
		busy  bool
	}{
		"a file beside ours": {
			prepare: func(h *tree) { h.write("run/nvidia/notes.txt", "mine") },
			stays:   []string{"run/nvidia/notes.txt"},
			left:    left("/run/nvidia", "not known to make: notes.txt"),
		},
		"more files beside ours than a message has": {
			prepare: func(h *tree) {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					h.write("usr/local/nvidia/toolkit/"+name, "mine")
				}
			},
			stays: []string{toolkitDir + "/a", toolkitDir + "/e"},
			left:  left("/usr/local/nvidia/toolkit", "make: a, b, c, and 2 more"),
		},
		"a CDI file of another program by our name": {
			prepare: func(h *tree) { h.write("etc/cdi/management.nvidia.com-gpu.yaml", "kind: example.com/gpu\n") },
			stays:   []string{"etc/cdi/management.nvidia.com-gpu.yaml"},
			left:    left("/etc/cdi/management.nvidia.com-gpu.yaml", "another program has written it"),
		},
		"CDI files by other names, without a report": {
			prepare: func(h *tree) { h.write("run/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n") },
			stays:   []string{"run/cdi/nvidia.yaml"},
			left:    BeEmpty(),
		},
		"features of another program by our name": {
			prepare: func(h *tree) {
				h.write("etc/kubernetes/node-feature-discovery/features.d/gfd", "example.com/x=1\n")
			},
			stays: []string{"etc/kubernetes/node-feature-discovery/features.d/gfd"},
			left:  left("/etc/kubernetes/node-feature-discovery/features.d/gfd", "another program has written it"),
		},
		"an empty directory that another container has mounted, without a report": {
			prepare: func(h *tree) {
				h.dir("run/cdi")
				h.process("77", "nfd-worker", "30 1 8:1 /run/cdi /cdi rw - ext4 /dev/sda rw\n")
			},
			stays: []string{"run/cdi"},
			left:  BeEmpty(),
		},
		"a directory of the stack that a container still has mounted": {
			prepare: func(h *tree) {
				h.dir("run/nvidia/validations")
				h.process("77", "agent", "30 1 8:1 /run/nvidia/validations /validations rw - ext4 /dev/sda rw\n")
			},
			stays: []string{"run/nvidia/validations"},
			left:  left("/run/nvidia/validations", "process 77 (agent) has it mounted"),
			busy:  true,
		},
		"a directory that a container has mounted from another file system": {
			prepare: func(h *tree) {
				h.mount("/run", "0:25")
				h.dir("run/nvidia/toolkit")
				h.process("77", "agent", "30 1 0:25 /nvidia /x rw - tmpfs tmpfs rw\n")
			},
			stays: []string{"run/nvidia"},
			left:  left("/run/nvidia", "process 77 (agent) has it mounted"),
			busy:  true,
		},
		"the driver's root while it is mounted, and all below": {
			prepare: func(h *tree) {
				h.mount("/run/nvidia/driver", "0:99")
				h.write("run/nvidia/driver/lib/firmware/nvidia/580/gsp.bin", "")
			},
			stays: []string{"run/nvidia/driver/lib/firmware/nvidia/580/gsp.bin"},
			left:  left("/run/nvidia/driver", "something is mounted there"),
		},
		"shared memory of the Multi-Process Service that is mounted": {
			prepare: func(h *tree) { h.mount("/run/nvidia/mps/shm", "0:99"); h.dir("run/nvidia/mps/shm") },
			stays:   []string{"run/nvidia/mps/shm"},
			left:    left("/run/nvidia/mps/shm", "something is mounted there"),
		},
		"a socket that is served": {
			prepare: func(h *tree) { h.socket("var/lib/kubelet/device-plugins/nvidia-mig.sock", true) },
			stays:   []string{"var/lib/kubelet/device-plugins/nvidia-mig.sock"},
			left:    left("/var/lib/kubelet/device-plugins/nvidia-mig.sock", "a program serves this socket"),
			busy:    true,
		},
		"a file by the name of a socket": {
			prepare: func(h *tree) { h.write("var/lib/kubelet/device-plugins/nvidia-x.sock", "") },
			stays:   []string{"var/lib/kubelet/device-plugins/nvidia-x.sock"},
			left:    left("/var/lib/kubelet/device-plugins/nvidia-x.sock", "not a socket"),
		},
		"a directory by the name of a file": {
			prepare: func(h *tree) {
				h.replace("run/nvidia/nvidia-driver.state")
				h.write("run/nvidia/nvidia-driver.state/x", "")
			},
			stays: []string{"run/nvidia/nvidia-driver.state/x"},
			left:  left("/run/nvidia/nvidia-driver.state", "it is a directory"),
		},
		"a file by the name of a directory": {
			prepare: func(h *tree) { h.replace("run/nvidia/validations"); h.write("run/nvidia/validations", "") },
			stays:   []string{"run/nvidia/validations"},
			left:    left("/run/nvidia/validations", "it is not a directory"),
		},
		"the process ID of a fabric manager that runs": {
			prepare: func(h *tree) {
				h.write("run/nvidia-fabricmanager/nv-fabricmanager.pid", "55\n")
				h.process("55", "nv-fabricmanage", "")
			},
			stays: []string{"run/nvidia-fabricmanager/nv-fabricmanager.pid"},
			left:  left("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "process 55 (nv-fabricmanage) runs"),
			busy:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			host.stack()
			test.prepare(host)
			report := host.clean()
			g.Expect(report.Left).To(test.left)
			busy := slices.ContainsFunc(report.Left, func(l cleanup.Left) bool { return l.Busy })
			g.Expect(busy).To(Equal(test.busy))
			for _, name := range test.stays {
				g.Expect(host.files()).To(HaveKey(name))
			}
			g.Expect(host.clean().Removed).To(BeEmpty(), "a second run")
		})
	}
}

// Each file of the stack stays with a mount on it, and each of its own directories while a process has it mounted.
func TestWhoHasMadeWhatStays(t *testing.T) {
	g, host, made := NewWithT(t), newTree(t), map[string]string{}
	host.operatingSystem()
	system := host.files()
	host.stack()
	for name, kind := range host.files() {
		switch _, ofSystem := system[name]; {
		case ofSystem:
		case kind != "d---------":
			host.mount("/"+name, "0:99")
		default:
			alone := newTree(t)
			alone.operatingSystem()
			alone.dir(name)
			alone.process("77", "agent", "30 1 8:1 /"+name+" /x rw - ext4 /dev/sda rw\n")
			for _, l := range alone.clean().Left {
				made[l.Path] = l.By
			}
		}
	}
	for _, l := range host.clean().Left {
		made[l.Path] = l.By
	}
	makers := map[string]string{
		"the driver": `^/run/nvidia(-fabricmanager/socket|/nvidia-driver\..*|/driver/.*\.bin|` +
			`/validations/\.driver-(ctr-ready|daemons-status))$`,
		"the validation":         `^/run/nvidia/validations/(\w.*|\.driver-ready\.tmp-123)$|^/dev/char/`,
		"the container toolkit":  `^/run/nvidia/toolkit/|^/usr/local/nvidia/toolkit|^/run/cdi/management|^/etc/containerd/`,
		"the MPS control daemon": `^/run/nvidia/mps/`,
		"the MIG manager":        `^/usr/local/nvidia/mig-manager`,
		"the device plugin":      `^/run/cdi/k8s|^/var/lib/kubelet/`,
		"GPU Feature Discovery":  `^/etc/kubernetes/.*/gfd$`,
		"the kubelet for a pod of the stack": `^/run/nvidia(-fabricmanager|-topologyd|/validations|/toolkit|/mps|` +
			`/driver(/.*[^n])?)?$|^/usr/local/nvidia$`,
	}
	g.Expect(made).To(HaveLen(54))
	for name, by := range made {
		g.Expect(name).To(MatchRegexp(cmp.Or(makers[by], "is of no one")), by)
	}
}

func TestARunningToolkitKeepsItsFile(t *testing.T) {
	const name = "run/nvidia/toolkit/toolkit.pid"
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.stack()
	locked, err := os.Open(host.path(name))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(syscall.Flock(int(locked.Fd()), syscall.LOCK_EX)).To(Succeed())
	g.Expect(host.clean().Busy()).To(left("/"+name, "the container toolkit still runs"))
	g.Expect(locked.Close()).To(Succeed())

	// It may have lost its lock.
	host.stack()
	host.process("77", "nvidia-toolkit", "")
	host.write(name, "77\n")
	g.Expect(host.clean().Busy()).To(left("/"+name, "process 77 (nvidia-toolkit) runs"))
	gone := []string{"/" + name, "/run/nvidia/toolkit", "/run/nvidia"}

	// Another process has got its ID after a kill.
	host.process("77", "nvidia-persiste", "")
	g.Expect(host.clean().Removed).To(Equal(gone))
	g.Expect(os.RemoveAll(host.path("proc/77"))).To(Succeed())
	host.write(name, "77\n")
	g.Expect(host.clean().Removed).To(Equal(gone))
}

// Links that an attacker, or a container with a directory of the stack, has put in place of what the stack makes.
func TestNoLinkOfTheStackIsFollowed(t *testing.T) {
	for _, name := range []string{
		"run/nvidia", "run/nvidia/validations", "run/nvidia/toolkit", "run/nvidia/driver", "run/nvidia/mps",
		"run/nvidia/mps/nvidia.com", "run/cdi", "etc/cdi", "usr/local/nvidia", "usr/local/nvidia/toolkit",
		"usr/local/nvidia/toolkit/.config", "etc/kubernetes/node-feature-discovery",
	} {
		for _, absolute := range []bool{false, true} {
			t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
				g, host, outside := NewWithT(t), newTree(t), newTree(t)
				host.operatingSystem()
				host.stack()
				// The target has the same files: in the host, or outside of its root.
				target := "/precious"
				if !absolute {
					target = filepath.Join(strings.Repeat("../", 30), outside.root)
				}
				g.Expect(os.RemoveAll(host.path(name))).To(Succeed())
				for _, trap := range []*tree{host, outside} {
					for _, file := range []string{
						"driver-ready", "validations/driver-ready", "toolkit.pid", "toolkit/nvidia-ctk", "nvidia-ctk",
						"nvidia-container-runtime/config.toml", "gpu/.started", "nvidia.com/gpu/.started", "gpu/log/x",
						"lib/firmware/nvidia/1/x.bin", "features.d/gfd", "management.nvidia.com-gpu.yaml",
					} {
						trap.write("precious/"+file, "management.nvidia.com/gpu nvidia.com/")
						if trap == outside {
							trap.write(file, "management.nvidia.com/gpu nvidia.com/")
						}
					}
				}
				host.link(target, name)
				before, beforeOutside := precious(host), outside.files()
				host.clean()
				g.Expect(precious(host)).To(Equal(before))
				g.Expect(outside.files()).To(Equal(beforeOutside))
				g.Expect(host.files()).To(HaveKey(name), "the link itself")
			})
		}
	}
}

// precious returns the files that no run may remove.
func precious(host *tree) map[string]string {
	all := host.files()
	for name := range all {
		if !strings.HasPrefix(name, "precious") {
			delete(all, name)
		}
	}
	return all
}

// A link by the name of a file is removed itself.
func TestALinkInPlaceOfAFileIsRemovedItself(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.link("/etc/os-release", "run/nvidia/validations/driver-ready")
	host.link("/etc/os-release", "run/cdi/management.nvidia.com-gpu.yaml")
	report := host.clean()
	g.Expect(report.Removed).To(ContainElement("/run/nvidia/validations/driver-ready"))
	g.Expect(report.Left).To(left("/run/cdi/management.nvidia.com-gpu.yaml", "it is not a regular file"))
	g.Expect(host.files()).To(HaveKeyWithValue("etc/os-release", ContainSubstring("ID=ubuntu")))
}

func TestErrors(t *testing.T) {
	t.Run("without the host's root", func(t *testing.T) {
		_, err := cleanup.Run(cleanup.Options{HostRoot: filepath.Join(t.TempDir(), "no")})
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("open the host's root; mount it at")))
	})
	t.Run("without the host's processes, directories stay", func(t *testing.T) {
		g, host := NewWithT(t), newTree(t)
		host.operatingSystem()
		host.stack()
		g.Expect(os.RemoveAll(host.path("proc"))).To(Succeed())
		report := host.clean()
		g.Expect(report.Removed).To(ContainElement("/run/nvidia/validations/driver-ready"))
		g.Expect(report.Removed).NotTo(ContainElement("/run/nvidia/validations"))
		g.Expect(report.Removed).NotTo(ContainElement("/usr/local/nvidia/toolkit/nvidia-ctk"))
		g.Expect(report.Left).To(ContainElement(And(HaveField("Path", "/run/nvidia/validations"),
			HaveField("Why", ContainSubstring("it is unknown whether a container uses it")))))
	})
	t.Run("one that cannot be removed does not hold up the others", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may remove all files")
		}
		g, host := NewWithT(t), newTree(t)
		host.operatingSystem()
		host.stack()
		g.Expect(os.Chmod(host.path("run/nvidia/validations"), 0o555)).To(Succeed())
		t.Cleanup(func() { _ = os.Chmod(host.path("run/nvidia/validations"), 0o755) })
		report, err := cleanup.Run(host.options())
		g.Expect(err).To(MatchError(ContainSubstring("clean /run/nvidia/validations/driver-ready: ")))
		g.Expect(report.Removed).To(ContainElement("/usr/local/nvidia"))
	})
}
