package cleanup

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// runtimeFiles are the configuration files to which the toolkit adds its runtimes, by the distributions and container
// runtimes that it is configured for, and the hooks of CRI-O.
var runtimeFiles = []string{
	"/etc/containerd/config.toml",
	"/etc/containerd/conf.d/99-nvidia.toml",
	"/etc/crio/config.toml",
	"/etc/crio/crio.conf.d/99-nvidia.conf",
	"/etc/docker/daemon.json",
	"/etc/k0s/containerd.d/nvidia.toml",
	"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
	"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
	"/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
	"/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
	"/var/snap/microk8s/current/args/containerd-template.toml",
	"/run/containers/oci/hooks.d/oci-nvidia-hook.json",
	"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
}

// generatedFiles are those among them that k3s and RKE2 write at each start, with the programs that are there.
var generatedFiles = []string{
	"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
	"/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
}

// stateDirs are where containerd has a directory for each container.
var stateDirs = []string{
	"/run/containerd", "/run/k3s/containerd", "/run/k0s/containerd", "/var/snap/microk8s/common/run/containerd",
}

// runtimeEntries are the files that the toolkit takes out of the runtime's configuration itself when it ends, unless it
// was killed. It also leaves its drop-in in CRI-O where its runtime is not the default.
func runtimeEntries(o Options) []entry {
	var all []entry
	for _, name := range slices.Concat(runtimeFiles, o.RuntimeFiles) {
		all = append(all, entry{base: path.Dir(name), name: literal(path.Base(name)), by: toolkit, keep: noteToolkitConfig})
	}
	for _, dir := range slices.Concat(
		[]string{"/etc/containerd/conf.d", "/etc/containerd", "/etc/crio/crio.conf.d", "/etc/crio", "/etc/docker"},
		parents("/run/containers/oci/hooks.d", "/run"), []string{"/run/nri"}) {
		all = append(all, entry{base: path.Dir(dir), name: path.Base(dir), kind: sharedDirectory, by: kubelet})
	}
	return all
}

// noteToolkitConfig keeps the configuration files that are not the toolkit's alone, and notes what they mean for the
// toolkit's programs.
func noteToolkitConfig(r *run, f found) verdict {
	text, v := read(f)
	programs := r.programs()
	switch {
	case v != (verdict{}):
		return v
	case !bytes.Contains(text, []byte(programs)):
		return verdict{foreign: true}
	case hasDefault(text):
		r.named = true
		v = verdict{why: "it makes the toolkit's runtime the default; take that out and restart the container runtime"}
		r.toolkit = &verdict{why: "the container runtime creates all containers with it, by " + f.path}
		return v
	case slices.Contains(generatedFiles, path.Join(f.entry.base, f.entry.name)):
		r.generated = true
		return verdict{
			why:  "it names programs in " + programs + ", as it was written while they were there; restart k3s or RKE2",
			busy: !r.options.KeepRuntimes,
		}
	case !strings.Contains(f.name, "nvidia"):
		r.named = true
		return verdict{why: "it names programs in " + programs + "; take them out and restart the container runtime"}
	}
	// The toolkit writes this file as a whole.
	return verdict{}
}

// programs is the directory of the toolkit's programs on the host.
func (r *run) programs() string { return path.Join(r.options.ToolkitInstallDir, "toolkit") + "/" }

// defaultRuntime matches the setting in the formats of containerd, CRI-O and Docker, in files and in their answers.
var defaultRuntime = regexp.MustCompile(`(?i)\bdefault[-_]?runtime(?:_?name)?["']?\s*[:=]\s*["']([^"']*)["']`)

// hasDefault reports whether a configuration makes another runtime than the usual ones the default.
func hasDefault(text []byte) bool {
	for _, match := range defaultRuntime.FindAllSubmatch(text, -1) {
		if !slices.Contains([]string{"", "runc", "crun"}, string(match[1])) {
			return true
		}
	}
	return false
}

// toolkitInUse keeps the toolkit's programs while anything needs them.
func toolkitInUse(r *run, _ found) verdict {
	if r.toolkit == nil {
		v := r.findUser(r.programs())
		r.toolkit = &v
	}
	return *r.toolkit
}

// findUser looks for containers that were created with programs in a directory, which must be there to stop them.
func (r *run) findUser(programs string) verdict {
	for _, dir := range stateDirs {
		// The file runtime has the path of the runtime's program.
		// Only a malformed pattern would fail.
		files, _ := fs.Glob(r.host.root.FS(), strings.TrimPrefix(dir, "/")+"/io.containerd.runtime.v2.task/*/*/runtime")
		for _, file := range files {
			if bytes.Contains(r.host.readFile(file), []byte(programs)) {
				return verdict{why: fmt.Sprintf("container %s was created with it", path.Base(path.Dir(file))), busy: true}
			}
		}
	}
	processes, err := r.host.processes()
	if err != nil {
		return verdict{why: "it is unknown whether it is used: " + err.Error()}
	}
	for _, process := range processes {
		// CRI-O starts a process for each container with the path of the runtime's program among its arguments.
		if bytes.Contains(r.host.readFile(path.Join("proc", process, "cmdline")), []byte(programs)) {
			return verdict{why: r.host.describe(process) + " uses it", busy: true}
		}
	}
	return verdict{}
}
