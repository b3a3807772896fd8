//go:build linux

package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// installer is the program of the toolkit's image.
const installer = "nvidia-ctk-installer"

// containerdVariable names the socket, in the process that plays containerd.
const containerdVariable = "TEST_NVIDIA_CONTAINERD"

// playContainerd listens as containerd does, and prints a line for each signal to read its configuration.
func playContainerd(socket string) error {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGHUP)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	go func() {
		for range signals {
			fmt.Println(restarts)
		}
	}()
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		// The peer may ask for the sender of what it reads, or close the connection before: a failed write is no error.
		raw, err := connection.SyscallConn()
		if err != nil {
			return err
		}
		var optionErr error
		err = raw.Control(func(fd uintptr) {
			optionErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		})
		_, _ = connection.Write([]byte("settings"))
		if err := errors.Join(err, optionErr); err != nil {
			return err
		}
	}
}

const restarts = "restarts"

// The places of the toolkit on a machine, and its configuration of containerd in the form in which NVIDIA's writes it.
const (
	toolkitRoot = "usr/local/nvidia"
	pidFile     = "run/nvidia/toolkit/toolkit.pid"
	mainConfig  = "etc/containerd/config.toml"
	dropIn      = "etc/containerd/conf.d/99-nvidia.toml"

	containerdConfig = `imports = ["/etc/containerd/conf.d/*.toml"]
version = 3

[plugins]

  [plugins."io.containerd.cri.v1.runtime"]

    [plugins."io.containerd.cri.v1.runtime".containerd]
      default_runtime_name = "runc"

      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes]

        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
            BinaryName = "/usr/sbin/runc"
            SystemdCgroup = CGROUP
`
)

// toolkitFiles are what the toolkit installs: programs and libraries, the scripts that start programs, and a link.
var toolkitFiles = map[string]string{
	"nvidia-cdi-hook": "file", "libnvidia-container.so.1": "file", "libnvidia-container-go.so.1": "file",
	".config/nvidia-container-runtime/config.toml": "file",
	"nvidia-container-toolkit":                     "link to nvidia-container-runtime-hook",
	"nvidia-ctk":                                   "script", "nvidia-ctk.real": "file",
	"nvidia-container-cli": "script", "nvidia-container-cli.real": "file",
	"nvidia-container-runtime": "script", "nvidia-container-runtime.real": "file",
	"nvidia-container-runtime.cdi": "script", "nvidia-container-runtime.cdi.real": "file",
	"nvidia-container-runtime.legacy": "script", "nvidia-container-runtime.legacy.real": "file",
	"nvidia-container-runtime-hook": "script", "nvidia-container-runtime-hook.real": "file",
}

// installed is what there is of the toolkit on a machine.
type installed struct {
	// Files are those of the toolkit with their kinds. PID says of the PID file whose number it has, and, if that is not
	// the toolkit's own, whether it is locked: NVIDIA's toolkit loses its lock at some garbage collection, or at none.
	Files map[string]string
	PID   string
	// Added are the settings that the drop-in adds to the configuration, and Kept reports whether that is as before.
	Added map[string]string
	Kept  bool
	// Described reports whether the driver is described by CDI.
	Described bool
	Restarts  int
}

// handlersOf are the settings of the handlers in the drop-in.
func handlersOf(cgroup string, main string, more map[string]string) map[string]string {
	found := maps.Clone(more)
	for name, program := range map[string]string{
		main: "", "nvidia-cdi": ".cdi", "nvidia-legacy": ".legacy",
	} {
		handler := "containerd.runtimes." + name + "."
		found[handler+"runtime_type"] = "io.containerd.runc.v2"
		found[handler+"options.SystemdCgroup"] = cgroup
		found[handler+"options.BinaryName"] = toolkitRoot + "/toolkit/nvidia-container-runtime" + program
	}
	return found
}

// The toolkit and its stand-in install alike, configure containerd alike, and withdraw that alike; and what ends one of
// them early ends the other.
func TestTheToolkitInstalls(t *testing.T) {
	t.Parallel()
	withCDI := map[string]string{"enable_cdi": "true"}
	tests := map[string]struct {
		cdi       bool
		variables []string
		cgroup    string
		added     map[string]string
		described bool
		// noContainerd: it is ended while it waits for containerd. locked: another one runs.
		noContainerd, locked bool
	}{
		"with CDI": {cdi: true, cgroup: "true", added: handlersOf("true", "nvidia", withCDI), described: true},
		"without CDI": {
			cgroup: "false",
			added:  handlersOf("false", "nvidia", map[string]string{"containerd.default_runtime_name": "nvidia"}),
		},
		"another handler": {
			cdi: true, variables: []string{"CONTAINERD_RUNTIME_CLASS=gpu"}, cgroup: "false",
			added: handlersOf("false", "gpu", withCDI), described: true,
		},
		"the handler of a mode": {
			variables: []string{"CONTAINERD_RUNTIME_CLASS=nvidia-legacy"}, cgroup: "false",
			added: handlersOf("false", "nvidia", map[string]string{"containerd.default_runtime_name": "nvidia-legacy"}),
		},
		"ended early": {
			cdi: true, cgroup: "false", added: handlersOf("false", "nvidia", withCDI), described: true,
			noContainerd: true,
		},
		"another one runs": {cdi: true, cgroup: "false", locked: true},
	}
	for name, test := range tests {
		manifest := "container-toolkit-without-cdi"
		if test.cdi {
			manifest = "container-toolkit-default"
		}
		for kind, of := range map[string]program{
			"NVIDIA's": {name: installer}, "the stand-in": {name: "nvidia-toolkit", standIn: standIn},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				i := newInstalling(t, test.cgroup)
				want := installed{
					Files: toolkitFiles, PID: "its own", Added: test.added, Kept: true, Described: test.described, Restarts: 1,
				}
				if test.locked {
					i.lock()
					want = installed{Files: map[string]string{"old": "file"}, PID: "none, locked", Kept: true}
				}
				if test.noContainerd {
					want.Restarts = 0
				} else {
					i.startContainerd()
				}
				p := i.command(t.Context(), append(i.variables(manifest), test.variables...), of)
				g.Expect(p.Start()).To(Succeed())
				ended := make(chan struct{})
				go func() { defer close(ended); _ = p.Wait() }()
				if test.locked {
					g.Eventually(ended).WithTimeout(patience).Should(BeClosed(), p.log.String)
					g.Expect(p.ProcessState.ExitCode()).To(Equal(1), p.log.String)
					g.Expect(p.log.String()).To(ContainSubstring("unable to get flock on pidfile: resource temporarily unavailable"))
					g.Expect(i.found(p)).To(Equal(want), p.log.String)
					return
				}
				if !test.noContainerd {
					g.Eventually(p.log.String).WithTimeout(patience).Should(ContainSubstring("Waiting for signal"))
				}
				// Before, a look at the lock of the PID file would keep the toolkit from taking it.
				g.Eventually(func() string { return filepath.Join(i.dir, dropIn) }).WithTimeout(patience).
					Should(BeAnExistingFile(), p.log.String)
				g.Eventually(i.found).WithArguments(p).WithTimeout(patience).Should(Equal(want), p.log.String)
				g.Expect(p.Process.Signal(syscall.SIGTERM)).To(Succeed())
				g.Eventually(ended).WithTimeout(patience).Should(BeClosed(), p.log.String)
				g.Expect(p.ProcessState.ExitCode()).To(Equal(0), p.log.String)
				want.PID = ""
				if !test.noContainerd {
					want.Added, want.Restarts = nil, 2
				}
				g.Eventually(i.found).WithArguments(p).WithTimeout(patience).Should(Equal(want), p.log.String)
			})
		}
	}
}

// installing is a machine on which the toolkit is installed in place of another one.
type installing struct {
	*machine
	config     string
	containerd *log
}

func newInstalling(t *testing.T, cgroup string) *installing {
	t.Helper()
	i := &installing{
		machine: newMachine(t, t4), config: strings.Replace(containerdConfig, "CGROUP", cgroup, 1), containerd: &log{},
	}
	i.write(mainConfig, i.config)
	i.write(toolkitRoot+"/toolkit/old", "")
	for name, kind := range toolkitFiles {
		switch {
		case strings.HasPrefix(name, "lib"):
			i.write("artifacts/"+strings.TrimPrefix(i.stack.Lib, i.root+"/")+"/"+name, "")
		case kind == "script" || name == "nvidia-cdi-hook":
			i.write("artifacts/usr/bin/"+name, "")
		}
	}
	mkdir(NewWithT(t), i.dir, "run", "containerd")
	return i
}

// variables are those that the operator sets in the container of the toolkit, with the places on this machine.
// manifest is the golden one.
func (i *installing) variables(manifest string) []string {
	const socket = "/run/containerd/containerd.sock"
	return append(renderedVariables(i.t, manifest, "nvidia-container-toolkit-ctr"),
		"ROOT="+i.dir+"/"+toolkitRoot, "TOOLKIT_PID_FILE=/"+pidFile, "TOOLKIT_SOURCE_ROOT="+i.dir+"/artifacts",
		"RUNTIME_CONFIG=/"+mainConfig, "CONTAINERD_CONFIG=/"+mainConfig, "RUNTIME_DROP_IN_CONFIG=/"+dropIn,
		"RUNTIME_DROP_IN_CONFIG_HOST_PATH=/"+dropIn, "RUNTIME_SOCKET="+socket, "CONTAINERD_SOCKET="+socket,
		// gpu-node reads these from the marker.
		"NVIDIA_DRIVER_ROOT=/run/nvidia/driver", "DRIVER_ROOT_CTR_PATH="+i.root, "NVIDIA_DEV_ROOT=/", "DEV_ROOT_CTR_PATH=/")
}

func (i *installing) startContainerd() {
	i.t.Helper()
	g := NewWithT(i.t)
	socket := filepath.Join(i.dir, "run/containerd/containerd.sock")
	played := exec.CommandContext(i.t.Context(), "/proc/self/exe")
	played.Env = append(os.Environ(), containerdVariable+"="+socket)
	played.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	played.Stdout, played.Stderr = i.containerd, os.Stderr
	g.Expect(played.Start()).To(Succeed())
	i.t.Cleanup(func() { _, _ = played.Process.Kill(), played.Wait() })
	g.Eventually(func() string { return socket }).WithTimeout(patience).Should(BeAnExistingFile())
}

// lock locks the PID file, as another toolkit does.
func (i *installing) lock() {
	i.t.Helper()
	g := NewWithT(i.t)
	file, err := os.Open(i.write(pidFile, "1\n"))
	g.Expect(err).NotTo(HaveOccurred())
	i.t.Cleanup(func() { _ = file.Close() })
	g.Expect(unix.Flock(int(file.Fd()), unix.LOCK_EX)).To(Succeed())
}

// found returns what there is of the toolkit.
func (i *installing) found(p *process) installed {
	i.t.Helper()
	g := NewWithT(i.t)
	config := i.read(mainConfig)
	found := installed{
		Files: map[string]string{}, PID: i.pid(p), Kept: config == i.config,
		Restarts: strings.Count(i.containerd.String(), restarts),
	}
	root := filepath.Join(i.dir, toolkitRoot, "toolkit")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, kind := strings.TrimPrefix(path, root+"/"), "file"
		if target, err := os.Readlink(path); err == nil {
			kind = "link to " + target
		} else if strings.HasPrefix(readFile(i.t, path), "#!") && strings.Contains(readFile(i.t, path), path+".real") {
			kind = "script"
		}
		found.Files[name] = kind
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.Expect(err).NotTo(HaveOccurred())
	}
	content, err := os.ReadFile(filepath.Join(i.dir, dropIn))
	if !errors.Is(err, fs.ErrNotExist) {
		g.Expect(err).NotTo(HaveOccurred())
		found.Added = settings(string(content))
		before := settings(i.config)
		maps.DeleteFunc(found.Added, func(key, value string) bool { return before[key] == value })
		for key, value := range found.Added {
			found.Added[key] = strings.TrimPrefix(value, i.dir+"/")
		}
	}
	specs, err := filepath.Glob(filepath.Join(i.dir, "run/cdi/management.nvidia.com-gpu.*"))
	g.Expect(err).NotTo(HaveOccurred())
	found.Described = len(specs) == 1
	return found
}

// pid returns whose number the PID file has, and whether it is locked unless it is the toolkit's own; empty without it.
func (i *installing) pid(p *process) string {
	i.t.Helper()
	g := NewWithT(i.t)
	file, err := os.Open(filepath.Join(i.dir, pidFile))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	whose := i.read(pidFile)
	switch whose {
	case "":
		whose = "none"
	case fmt.Sprintln(p.Process.Pid):
		return "its own"
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		whose += ", locked"
	}
	return whose
}

// settings are those of the plugin of a configuration of containerd that has one setting a line.
func settings(config string) map[string]string {
	found, section := map[string]string{}, ""
	for line := range strings.Lines(config) {
		line = strings.NewReplacer("'", "", `"`, "").Replace(strings.TrimSpace(line))
		if strings.HasPrefix(line, "[") {
			section = strings.TrimPrefix(strings.Trim(line, "[]")+".", "plugins.io.containerd.cri.v1.runtime.")
		} else if key, value, is := strings.Cut(line, " = "); is {
			found[section+key] = value
		}
	}
	return found
}
