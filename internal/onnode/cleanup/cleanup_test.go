package cleanup_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
)

func TestAHostIsAsBeforeTheStack(t *testing.T) {
	for name, prepare := range map[string]func(*tree){
		"with all that the stack makes":          (*tree).stack,
		"with a part of it, as after a lost pod": func(h *tree) { h.write("run/nvidia/validations/driver-ready", "") },
		"with a copy of the MIG manager": func(h *tree) {
			h.write("usr/local/nvidia/mig-manager/config.yaml", "")
		},
		"with a process ID of a fabric manager that has ended": func(h *tree) {
			h.write("run/nvidia-fabricmanager/nv-fabricmanager.pid", "77\n")
		},
		"with a malformed process ID of a fabric manager": func(h *tree) {
			h.write("run/nvidia-fabricmanager/nv-fabricmanager.pid", "modules\n")
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
	host.process("77", "agent", "30 1 8:1 /mnt/os/opt/gpu /x rw - ext4 /dev/sda rw\n")
	report, err := cleanup.Run(options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Left).To(Equal([]cleanup.Left{{
		Path: "/mnt/os/opt/gpu", By: "the MIG manager", Why: "process 77 (agent) has it mounted", Busy: true,
	}}))
	host.replace("proc/77")
	_, err = cleanup.Run(options)
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
		host.process("77", "agent", "30 1 8:1 "+install+" /x rw - ext4 /dev/sda rw\n")
		report, err := cleanup.Run(options)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(report.Left).To(Equal([]cleanup.Left{{
			Path: install, By: "the kubelet for a pod of the stack", Why: "process 77 (agent) has it mounted", Busy: true,
		}}))
		host.replace("proc/77")
		report, err = cleanup.Run(options)
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
	host.link("../../../var/usrlocal", "usr/local")
	host.write("var/usrlocal/nvidia/toolkit/nvidia-ctk", "")
	host.write("run/cdi/management.nvidia.com-gpu.yaml", "kind: management.nvidia.com/gpu\n")
	report := host.clean()
	g.Expect(report.Removed).To(ConsistOf("/run/cdi/management.nvidia.com-gpu.yaml", "/run/cdi",
		"/var/usrlocal/nvidia/toolkit/nvidia-ctk", "/var/usrlocal/nvidia/toolkit", "/var/usrlocal/nvidia"))
}

func TestAsManyLinksAreFollowedAsTheKernelDoes(t *testing.T) {
	for links, message := range map[int]string{40: "", 41: "clean /usr/local: /usr/local: too many symbolic links"} {
		g, host := NewWithT(t), newTree(t)
		host.operatingSystem()
		host.replace("usr/local")
		host.write("opt/local/nvidia/toolkit/nvidia-ctk", "")
		name := "usr/local"
		for link := 1; link < links; link++ {
			next := fmt.Sprint("opt/", link)
			host.link("/"+next, name)
			name = next
		}
		host.link("/opt/local", name)
		_, err := cleanup.Run(host.options())
		if message != "" {
			g.Expect(err).To(MatchError(ContainSubstring(message)))
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(host.files()).NotTo(HaveKey("opt/local/nvidia"))
	}
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
		"files beside ours": {
			prepare: func(h *tree) { h.write("run/nvidia/a", ""); h.write("run/nvidia/b", ""); h.write("run/nvidia/c", "") },
			stays:   []string{"run/nvidia/a", "run/nvidia/c"},
			left: ConsistOf(And(HaveField("Path", "/run/nvidia"),
				HaveField("Why", "it has files that the stack is not known to make: a, b, c"))),
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
		"CDI files of another program by our names": {
			prepare: func(h *tree) {
				h.write("etc/cdi/management.nvidia.com-gpu.yaml", "kind: example.com/gpu\n")
				h.write("etc/cdi/k8s.device-plugin.nvidia.com-gpu.yaml", "kind: example.com/gpu\n")
			},
			stays: []string{"etc/cdi/management.nvidia.com-gpu.yaml", "etc/cdi/k8s.device-plugin.nvidia.com-gpu.yaml"},
			left: left("/etc/cdi/management.nvidia.com-gpu.yaml", "another program has written it",
				"/etc/cdi/k8s.device-plugin.nvidia.com-gpu.yaml", "another program has written it"),
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
				for _, id := range []string{"77", "78"} {
					h.process(id, "agent", "30 1 8:1 /run/nvidia/validations /validations rw - ext4 /dev/sda rw\n")
				}
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
			left:  And(left("/run/nvidia/driver", "something is mounted there"), ConsistOf(HaveField("By", "the driver"))),
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
		"files by the names of sockets": {
			prepare: func(h *tree) {
				h.write("var/lib/kubelet/device-plugins/nvidia-x.sock", "")
				h.replace("run/nvidia-fabricmanager/socket")
				h.write("run/nvidia-fabricmanager/socket", "")
			},
			stays: []string{"var/lib/kubelet/device-plugins/nvidia-x.sock", "run/nvidia-fabricmanager/socket"},
			left: left("/var/lib/kubelet/device-plugins/nvidia-x.sock", "not a socket",
				"/run/nvidia-fabricmanager/socket", "not a socket"),
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
		"a link by the name of a directory": {
			prepare: func(h *tree) { h.replace("run/nvidia/validations"); h.link("/opt", "run/nvidia/validations") },
			stays:   []string{"run/nvidia/validations"},
			left:    left("/run/nvidia/validations", "it is a symbolic link, which is not followed"),
		},
		"links by the names of files with process IDs": {
			prepare: func(h *tree) {
				h.replace("run/nvidia/nvidia-driver.pid")
				h.replace("run/nvidia-fabricmanager/nv-fabricmanager.pid")
				h.link("/etc/os-release", "run/nvidia/nvidia-driver.pid")
				h.link("/etc/os-release", "run/nvidia-fabricmanager/nv-fabricmanager.pid")
			},
			stays: []string{"run/nvidia/nvidia-driver.pid", "run/nvidia-fabricmanager/nv-fabricmanager.pid"},
			left: left("/run/nvidia/nvidia-driver.pid", "it is not a regular file",
				"/run/nvidia-fabricmanager/nv-fabricmanager.pid", "it is not a regular file"),
		},
		"the process ID of a fabric manager that runs": {
			prepare: func(h *tree) {
				h.write("run/nvidia-fabricmanager/nv-fabricmanager.pid", "4155\n")
				h.process("4155", "nv-fabricmanage", "")
			},
			stays: []string{"run/nvidia-fabricmanager/nv-fabricmanager.pid"},
			left:  left("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "process 4155 (nv-fabricmanage) runs"),
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

// Each file of the stack stays with a mount on it, each of its own directories while a process has it mounted, and each
// directory that cannot be read.
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
			used, closed := newTree(t), newTree(t)
			for _, alone := range []*tree{used, closed} {
				alone.operatingSystem()
				alone.dir(name)
			}
			used.process("77", "agent", "30 1 8:1 /"+name+" /x rw - ext4 /dev/sda rw\n")
			g.Expect(os.Chmod(closed.path(name), 0)).To(Succeed())
			unreadable, _ := bound(t, closed.options())
			g.Expect(os.Chmod(closed.path(name), 0o755)).To(Succeed())
			for _, l := range slices.Concat(used.clean().Left, unreadable.Left) {
				made[l.Path] = l.By
			}
		}
	}
	for _, l := range host.clean().Left {
		made[l.Path] = l.By
	}
	makers := map[string]string{
		"the driver": `^/run/nvidia(-fabricmanager/(socket|nv-fabricmanager\.pid)|/nvidia-driver\..*|/driver/.*\.bin|` +
			`/validations/\.driver-(ctr-ready|daemons-status))$`,
		"the validation": `^/run/nvidia/validations/(\w.*|\.driver-ready\.tmp-123)$|^/dev/char/`,
		"the container toolkit": `^/run/nvidia/toolkit/|^/usr/local/nvidia/toolkit|^/run/cdi/management|` +
			`^/etc/containerd/conf.d/`,
		"the MPS control daemon": `^/run/nvidia/mps/`,
		"the MIG manager":        `^/usr/local/nvidia/mig-manager`,
		"the device plugin":      `^/run/cdi/k8s|^/var/lib/kubelet/`,
		"GPU Feature Discovery":  `^/etc/kubernetes/.*/gfd(-tmp.*)?$`,
		"the kubelet for a pod of the stack": `^/run/nvidia(-fabricmanager|-topologyd|/validations|/toolkit|/mps|` +
			`/driver(/.*[^n])?)?$|^/usr/local/nvidia$|^/etc/containerd/conf\.d$|^/run/(cdi|mellanox.*|containers.*)$|` +
			`^/dev/log$|^/etc/kubernetes(/node-feature-discovery(/features\.d)?)?$`,
	}
	g.Expect(made).To(HaveLen(72))
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
						"mps/.ready",
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
	host.link("/etc/os-release", "etc/docker/daemon.json")
	report := host.clean()
	g.Expect(report.Removed).To(ContainElement("/run/nvidia/validations/driver-ready"))
	g.Expect(report.Left).To(left("/run/cdi/management.nvidia.com-gpu.yaml", "it is not a regular file",
		"/etc/docker/daemon.json", "it is not a regular file"))
	g.Expect(host.files()).To(HaveKeyWithValue("etc/os-release", ContainSubstring("ID=ubuntu")))
}

func TestErrors(t *testing.T) {
	t.Run("without the host's root", func(t *testing.T) {
		_, err := cleanup.Run(cleanup.Options{HostRoot: filepath.Join(t.TempDir(), "no")})
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("open the host's root; mount it at")))
	})
	t.Run("without the mounts", func(t *testing.T) {
		options := newTree(t).options()
		options.MountInfo += ".no"
		_, err := cleanup.Run(options)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("find what is mounted: ")))
	})
	t.Run("a file by the name of a directory of the operating system is none", func(t *testing.T) {
		g, host := NewWithT(t), newTree(t)
		host.operatingSystem()
		host.write("etc/k0s", "")
		host.write("etc/docker", "")
		host.write("etc/cdi", "")
		g.Expect(host.clean().Left).To(BeEmpty())
	})
	for lost, why := range map[string]string{
		"proc": "list the processes of the host; is its root mounted", "proc/1": "there are no processes",
	} {
		t.Run("without the host's processes, directories stay", func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			host.stack()
			host.replace(lost)
			report := host.clean()
			g.Expect(report.Removed).To(ContainElement("/run/nvidia/validations/driver-ready"))
			g.Expect(report.Removed).NotTo(ContainElement("/run/nvidia/validations"))
			g.Expect(report.Removed).NotTo(ContainElement("/usr/local/nvidia/toolkit/nvidia-ctk"))
			g.Expect(report.Left).NotTo(ContainElement(HaveField("Path", "/run/cdi")))
			g.Expect(report.Left).To(ContainElements(
				And(HaveField("Path", "/run/nvidia/validations"),
					HaveField("Why", ContainSubstring("it is unknown whether a container uses it: "+why))),
				And(HaveField("Path", "/usr/local/nvidia/toolkit/nvidia-ctk"),
					HaveField("Why", ContainSubstring("it is unknown whether it is used: "+why)))))
		})
	}
}

// What cannot be read or removed does not hold up the rest.
func TestPermissions(t *testing.T) {
	for name, test := range map[string]struct {
		mode os.FileMode
		// fails has an error of the run, or why is what it reports of the path.
		fails, why string
	}{
		"run/nvidia/validations": {mode: 0o555, fails: "clean /run/nvidia/validations/driver-ready: "},
		// Its entries are not entered, and it is no empty directory.
		"usr/local/nvidia/toolkit":               {fails: "clean /usr/local/nvidia/toolkit: ", why: "permission denied"},
		"run/nvidia/mps":                         {mode: 0o444, fails: "clean /run/nvidia/mps: ", why: "permission denied"},
		"etc/containerd/conf.d":                  {fails: "clean /etc/containerd/conf.d: "},
		"dev/char":                               {mode: 0o444, fails: "clean /dev/char: "},
		"run/nvidia/nvidia-driver.pid":           {why: "it cannot be read: "},
		"run/cdi/management.nvidia.com-gpu.yaml": {why: "it cannot be read: "},
	} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			host.stack()
			g.Expect(os.Chmod(host.path(name), test.mode)).To(Succeed())
			t.Cleanup(func() { _ = os.Chmod(host.path(name), 0o755) })
			report, err := bound(t, host.options())
			if test.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(And(ContainSubstring(test.fails), ContainSubstring("permission denied"))))
			}
			if test.why != "" {
				g.Expect(report.Left).To(ContainElement(
					And(HaveField("Path", "/"+name), HaveField("Why", ContainSubstring(test.why)))))
			}
			g.Expect(report.Removed).To(ContainElement("/run/nvidia/nvidia-driver.state"))
		})
	}
}

// bound runs the cleanup so that the permissions of files hold for root, too.
func bound(t *testing.T, o cleanup.Options) (cleanup.Report, error) {
	t.Helper()
	g := NewWithT(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	g.Expect(unix.Capget(&header, &before[0])).To(Succeed())
	less := before
	less[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	g.Expect(unix.Capset(&header, &less[0])).To(Succeed())
	defer func() { g.Expect(unix.Capset(&header, &before[0])).To(Succeed()) }()
	return cleanup.Run(o)
}

// The first directory that may go makes the run read the mounts of a process, which wait for this test to write them.
// By then another process has filled that directory, and the first process ends.
func TestTheHostChangesMeanwhile(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.dir("run/cdi")
	host.dir("run/nvidia/validations")
	host.process("77", "agent", "")
	host.served("proc/77/mountinfo", "30 1 8:1 /run/nvidia/validations /x rw - ext4 /dev/sda rw\n", func() {
		_ = os.WriteFile(host.path("run/cdi/other.json"), nil, 0o600)
	})
	g.Expect(host.clean().Left).To(Equal([]cleanup.Left{
		{Path: "/run/cdi", By: "the kubelet for a pod of the stack", Why: "it is filled again", Busy: true},
		{
			Path: "/run/nvidia/validations", By: "the kubelet for a pod of the stack",
			Why: "process 77 (agent) has it mounted", Busy: true,
		},
	}))
}

// A program of the toolkit is gone while the run looks for containers that use the first one.
func TestAFileIsGoneMeanwhile(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	const dir = "usr/local/nvidia/toolkit/"
	host.write(dir+"nvidia-a", "")
	host.write(dir+"nvidia-b", "")
	host.process("77", "agent", "")
	host.served("proc/77/cmdline", "", func() { _ = os.Remove(host.path(dir + "nvidia-b")) })
	g.Expect(host.clean().Removed).To(ContainElements("/"+dir+"nvidia-a", "/usr/local/nvidia"))
}

// A mount that another container has made is not among the mounts that a run reads when it begins.
func TestADirectoryIsMountedMeanwhile(t *testing.T) {
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.dir("run/nvidia/mps/shm")
	options := host.options()
	done := make(chan struct{})
	var report cleanup.Report
	var err, mounts error
	go func() {
		defer close(done)
		// The thread has mounts of its own, and so ends with this function.
		runtime.LockOSThread()
		if mounts = unix.Unshare(unix.CLONE_NEWNS); mounts != nil {
			return
		}
		if mounts = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); mounts == nil {
			mounts = unix.Mount("tmpfs", host.path("run/nvidia/mps/shm"), "tmpfs", 0, "")
		}
		report, err = cleanup.Run(options)
	}()
	<-done
	if errors.Is(mounts, unix.EPERM) {
		t.Skip("this process may not mount")
	}
	g.Expect(mounts).NotTo(HaveOccurred())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Left).To(Equal([]cleanup.Left{{
		Path: "/run/nvidia/mps/shm", By: "the MPS control daemon",
		Why: "something is mounted there; unmount it once it is not used",
	}}))
}
