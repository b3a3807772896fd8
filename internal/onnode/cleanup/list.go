package cleanup

import (
	"path"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// kind is what an entry of the list must be to be removed.
type kind int

const (
	// anyFile is a file of any type but a directory, and of a symbolic link the link itself.
	anyFile kind = iota
	// socket is a socket that no program serves.
	socket
	// directory is an empty directory that no process has mounted.
	directory
	// sharedDirectory is the same, but other software may use it too.
	sharedDirectory
)

// entry is something that the stack makes on the host.
type entry struct {
	// base is a directory of the operating system.
	base string
	// name is the path below base; its elements are patterns of package path.
	name string
	kind kind
	// by is who makes it.
	by string
	// keep decides whether it stays though it is of that kind; nil if it never does.
	keep func(*run, found) verdict
}

// Who makes the entries.
const (
	kubelet   = "the kubelet for a pod of the stack"
	validator = "the validation"
	driver    = "the driver"
	toolkit   = "the container toolkit"
	plugin    = "the device plugin"
	mpsDaemon = "the MPS control daemon"
	discovery = "GPU Feature Discovery"
	mig       = "the MIG manager"
	runtime   = "the container runtime"
)

// list is all that the stack makes on a host, in the order of removal: what is in a directory before the directory. The
// configuration of the container runtime is removed before, see runtimeEntries.
func list(o Options) []entry {
	return slices.Concat(cdiEntries(), deviceEntries(o), markerEntries(), driverEntries(o), mpsEntries(o),
		discoveryEntries(), migEntries(o), toolkitEntries(o),
		[]entry{{base: "/run", name: "nvidia", kind: directory, by: kubelet}})
}

// cdiEntries are the specifications of the Container Device Interface. Those of the host's own toolkit have other
// names.
func cdiEntries() []entry {
	var all []entry
	for _, dir := range []string{"/var/run", "/etc"} {
		for _, extension := range []string{".yaml", ".json"} {
			all = append(all,
				entry{base: dir, name: "cdi/management.nvidia.com-gpu" + extension, by: toolkit,
					keep: unlessContains("management.nvidia.com/gpu")},
				entry{base: dir, name: "cdi/k8s.device-plugin.nvidia.com-*" + extension, by: plugin,
					keep: unlessContains("k8s.device-plugin.nvidia.com/")})
		}
		all = append(all, entry{base: dir, name: "cdi", kind: sharedDirectory, by: kubelet})
	}
	return all
}

// deviceEntries are the plugin's sockets, in the directory where the kubelet listens whatever its root directory is,
// and the links to the devices.
func deviceEntries(o Options) []entry {
	devChar := path.Join(o.RootFS, "dev/char")
	return []entry{
		{base: "/var/lib/kubelet/device-plugins", name: "nvidia-*.sock", kind: socket, by: plugin},
		// Those whose names start with a dot were being made.
		{base: devChar, name: "*:*", by: validator, keep: linkInUse},
		// The driver mounts the socket of the system's log; where there is none, the runtime makes a directory.
		{base: "/dev", name: "log", kind: sharedDirectory, by: kubelet},
	}
}

func markerEntries() []entry {
	dir := strings.TrimPrefix(labels.ValidationsDir, "/run/") + "/"
	all := []entry{
		{base: "/run", name: dir + labels.DriverContainerReady, by: driver},
		{base: "/run", name: dir + labels.DriverDaemonsStatus, by: driver},
	}
	// Those whose names start with a dot are files that were being written.
	for _, suffix := range []string{labels.MarkerSuffix, labels.ReasonSuffix, labels.ProgressSuffix} {
		all = append(all, entry{base: "/run", name: dir + "[^.]*" + suffix, by: validator},
			entry{base: "/run", name: dir + ".*" + suffix + ".tmp-*", by: validator})
	}
	return append(all, entry{base: "/run", name: strings.TrimSuffix(dir, "/"), kind: directory, by: kubelet})
}

// driverEntries are what the driver's containers leave. Its root is a mount while it runs; what is below the mount
// point without it has been made for its volumes.
func driverEntries(o Options) []entry {
	all := []entry{
		{base: "/run", name: "nvidia/nvidia-driver.pid", by: driver, keep: locked},
		{base: "/run", name: "nvidia/nvidia-driver.state", by: driver},
		{base: "/run", name: "nvidia-fabricmanager/socket", kind: socket, by: driver},
		{base: "/run", name: "nvidia-fabricmanager/nv-fabricmanager.pid", by: driver, keep: anyProcessRuns},
		{base: "/run", name: "nvidia-fabricmanager", kind: directory, by: kubelet},
		{base: "/run", name: "nvidia-topologyd", kind: directory, by: kubelet},
		{base: "/run", name: "nvidia/driver/lib/firmware/nvidia/*/*.bin", by: driver},
	}
	for _, dir := range parents("nvidia/driver/lib/firmware/nvidia/*", "nvidia") {
		all = append(all, entry{base: "/run", name: dir, kind: directory, by: kubelet})
	}
	base, name := ownDirectory(o.DriverInstallDir)
	all = append(all, entry{base: base, name: name, kind: directory, by: kubelet})
	for _, dir := range append(parents("mellanox/drivers/usr/src", "mellanox"), "mellanox") {
		all = append(all, entry{base: "/run", name: dir, kind: sharedDirectory, by: kubelet})
	}
	return all
}

// mpsEntries are the directories of the Multi-Process Service, with one for each resource.
func mpsEntries(o Options) []entry {
	base, root := ownDirectory(o.MPSRoot)
	at := func(name string) string { return path.Join(root, name) }
	return []entry{
		{base: base, name: at(".ready"), by: mpsDaemon},
		{base: base, name: at("nvidia.com/*/.started"), by: mpsDaemon},
		{base: base, name: at("nvidia.com/*/log/*"), by: mpsDaemon},
		{base: base, name: at("nvidia.com/*/log"), kind: directory, by: mpsDaemon},
		{base: base, name: at("nvidia.com/*/pipe/*"), by: mpsDaemon},
		{base: base, name: at("nvidia.com/*/pipe"), kind: directory, by: mpsDaemon},
		{base: base, name: at("nvidia.com/*"), kind: directory, by: mpsDaemon},
		{base: base, name: at("nvidia.com"), kind: directory, by: mpsDaemon},
		{base: base, name: at("shm"), kind: directory, by: mpsDaemon},
		{base: base, name: root, kind: directory, by: kubelet},
	}
}

func discoveryEntries() []entry {
	dir := strings.TrimPrefix(labels.FeaturesDir, "/etc/")
	all := []entry{
		{base: "/etc", name: dir + "/" + labels.FeaturesFile, by: discovery, keep: unlessContains("nvidia.com/")},
		{base: "/etc", name: dir + "/gfd-tmp/gfd-*", by: discovery},
		{base: "/etc", name: dir + "/gfd-tmp", kind: directory, by: discovery},
	}
	for _, dir := range append(parents(dir, "kubernetes"), "kubernetes") {
		all = append(all, entry{base: "/etc", name: dir, kind: sharedDirectory, by: kubelet})
	}
	return all
}

// migEntries are what the MIG manager copies into the root of the operating system to run there, where the driver
// belongs to the host.
func migEntries(o Options) []entry {
	base, root := ownDirectory(path.Join(o.RootFS, o.ToolkitInstallDir))
	at := func(name string) string { return path.Join(root, name) }
	all := []entry{
		{base: base, name: at("mig-manager/nvidia-mig-parted"), by: mig},
		{base: base, name: at("mig-manager/config.yaml"), by: mig},
		{base: base, name: at("mig-manager"), kind: directory, by: mig},
	}
	if path.Clean(o.RootFS) != "/" {
		all = append(all, entry{base: base, name: root, kind: directory, by: mig})
	}
	return all
}

func toolkitEntries(o Options) []entry {
	base, root := ownDirectory(o.ToolkitInstallDir)
	at := func(name string) string { return path.Join(root, name) }
	return []entry{
		{base: base, name: at("toolkit/nvidia-*"), by: toolkit, keep: toolkitInUse},
		{base: base, name: at("toolkit/libnvidia-container*"), by: toolkit, keep: toolkitInUse},
		{base: base, name: at("toolkit/.config/nvidia-container-runtime/config.toml"), by: toolkit, keep: toolkitInUse},
		{base: base, name: at("toolkit/.config/nvidia-container-runtime"), kind: directory, by: toolkit},
		{base: base, name: at("toolkit/.config"), kind: directory, by: toolkit},
		{base: base, name: at("toolkit"), kind: directory, by: toolkit},
		{base: base, name: root, kind: directory, by: kubelet},
		{base: "/run", name: "nvidia/toolkit/toolkit.pid", by: toolkit, keep: toolkitRuns},
		// The file that the toolkit adds its import to where the runtime needs none.
		{base: "/run", name: "nvidia/toolkit/k0s-unused.toml", by: toolkit},
		{base: "/run", name: "nvidia/toolkit", kind: directory, by: kubelet},
	}
}

// parents returns a path and the directories above it, the longest first, up to but without top.
func parents(name, top string) []string {
	var all []string
	for ; name != top && name != "."; name = path.Dir(name) {
		all = append(all, name)
	}
	return all
}

// ownDirectory splits the path of a directory of the stack: only what is above it belongs to the operating system.
func ownDirectory(dir string) (base, name string) {
	if below, found := strings.CutPrefix(dir, "/run/nvidia/"); found {
		return "/run", "nvidia/" + literal(below)
	}
	return path.Dir(dir), literal(path.Base(dir))
}

// literal returns a pattern that matches only the name.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}
