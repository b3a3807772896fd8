package containertoolkit

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// The variables with which users of NVIDIA's operator set the paths of the container runtime's files on the host. The
// pod mounts the directories, and the toolkit gets the paths in its container.
const (
	envConfig       = "RUNTIME_CONFIG"
	envDropIn       = "RUNTIME_DROP_IN_CONFIG"
	envDropInOnHost = "RUNTIME_DROP_IN_CONFIG_HOST_PATH"
	envSocket       = "RUNTIME_SOCKET"
	envSource       = "RUNTIME_CONFIG_SOURCE"
	envExecutable   = "RUNTIME_EXECUTABLE_PATH"
)

// envHandler is the name of the runtime that the toolkit adds to containerd.
const envHandler = "CONTAINERD_RUNTIME_CLASS"

// The variable and the argument that make the toolkit not restart the container runtime.
var (
	noRestartEnv = v1.EnvVar{Name: "RUNTIME_RESTART_MODE", Value: "none"}
	noRestartArg = []string{"--restart-mode", "none"}
)

// runtimeNames are the toolkit's names for a runtime: the value of RUNTIME, and the variables of this runtime only.
// socket is empty if the toolkit reads no such variable.
var runtimeNames = map[string]struct{ name, config, socket string }{
	nodeinfo.RuntimeContainerd: {"containerd", "CONTAINERD_CONFIG", "CONTAINERD_SOCKET"},
	nodeinfo.RuntimeCRIO:       {"crio", "CRIO_CONFIG", ""},
	nodeinfo.RuntimeDocker:     {"docker", "DOCKER_CONFIG", "DOCKER_SOCKET"},
}

var (
	// hostFiles are the variables with the path of a file on the host.
	hostFiles = []string{
		envConfig, envDropIn, envDropInOnHost, envSocket,
		"CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "CRIO_CONFIG", "DOCKER_CONFIG", "DOCKER_SOCKET",
	}
	// commonVariables apply to any runtime.
	commonVariables = []string{envConfig, envDropIn, envDropInOnHost, envSocket, envSource, envExecutable}
)

// hostRuntime returns the files and sockets that the spec names, and whether the toolkit must not signal the runtime.
func hostRuntime(in operand.Input) operand.HostRuntime {
	files, sockets := []string{envConfig, envDropIn, envDropInOnHost}, []string{envSocket}
	for _, runtime := range runtimeNames {
		files, sockets = append(files, runtime.config), append(sockets, runtime.socket)
	}
	spec := in.Spec.Toolkit
	told := operand.HostRuntime{Keep: disablesRestart(spec.Args)}
	for _, variable := range spec.Env {
		switch {
		case variable.Value == "":
		case slices.Contains(files, variable.Name):
			told.Files = append(told.Files, variable.Value)
		case slices.Contains(sockets, variable.Name):
			told.Sockets = append(told.Sockets, variable.Value)
		case variable.Name == noRestartEnv.Name:
			// With systemd, a signal may not be enough to start the runtime again.
			told.Keep = told.Keep || variable.Value != "signal"
		}
	}
	return told
}

// checkPaths returns an error for a path that cannot be mounted.
func checkPaths(env []v1.EnvVar) error {
	for _, variable := range env {
		if !slices.Contains(hostFiles, variable.Name) || variable.Value == "" {
			continue
		}
		if !path.IsAbs(variable.Value) || path.Clean(variable.Value) != variable.Value || path.Dir(variable.Value) == "/" {
			return fmt.Errorf("spec.toolkit.env: %s is %q: it must be the absolute path of a file in a directory of the host",
				variable.Name, variable.Value)
		}
	}
	return nil
}

// checkAmbiguousPaths returns an error for a path that would apply to several container runtimes.
func checkAmbiguousPaths(env []v1.EnvVar, layouts []nodeinfo.Layout) error {
	runtimes := map[string]bool{}
	for _, layout := range layouts {
		runtimes[layout.Runtime] = true
	}
	for _, variable := range env {
		if len(runtimes) > 1 && slices.Contains(commonVariables, variable.Name) {
			return fmt.Errorf("spec.toolkit.env: %s is ambiguous, as the GPU nodes have several container runtimes: "+
				"use CONTAINERD_CONFIG, CONTAINERD_SOCKET, CRIO_CONFIG, DOCKER_CONFIG and DOCKER_SOCKET", variable.Name)
		}
	}
	return nil
}

// passedOn returns the variables that are passed to the toolkit unchanged. As with NVIDIA's operator, the name of
// containerd's runtime is not among them: it is the handler of the RuntimeClass.
func passedOn(env []v1.EnvVar) []v1.EnvVar {
	return slices.DeleteFunc(slices.Clone(env), func(e v1.EnvVar) bool {
		return slices.Contains(hostFiles, e.Name) || slices.Contains([]string{envSource, envExecutable, envHandler}, e.Name)
	})
}

// overridePaths returns the layout with the paths that the spec overrides.
func overridePaths(layout nodeinfo.Layout, env []v1.EnvVar) nodeinfo.Layout {
	overrides := map[string]string{}
	for _, variable := range env {
		overrides[variable.Name] = variable.Value
	}
	names := runtimeNames[layout.Runtime]
	layout.Config = cmp.Or(overrides[envConfig], overrides[names.config], layout.Config)
	layout.DropIn = cmp.Or(overrides[envDropIn], overrides[envDropInOnHost], layout.DropIn)
	layout.Socket = cmp.Or(overrides[envSocket], overrides[names.socket], layout.Socket)
	layout.ConfigSource = cmp.Or(hostSources(overrides[envSource]), layout.ConfigSource)
	layout.Executable = cmp.Or(overrides[envExecutable], layout.Executable)
	return layout
}

// hostSources prefixes the files in a list of configuration sources with the mount path of the host's root.
func hostSources(list string) string {
	if list == "" {
		return ""
	}
	var found []string
	for source := range strings.SplitSeq(list, ",") {
		source = strings.TrimSpace(source)
		if file, isFile := strings.CutPrefix(source, "file="); isFile {
			source = "file=" + path.Join(labels.HostRootMount, file)
		}
		found = append(found, source)
	}
	return strings.Join(found, ",")
}

// The directories of the host in the toolkit's container.
const (
	configDir = "/runtime/config-dir"
	dropInDir = "/runtime/config-dir.d"
	socketDir = "/runtime/sock-dir"
	nriDir    = "/runtime/nri-sock-dir"
	// nriSocket is where container runtimes listen for NRI plugins.
	nriSocket = "/var/run/nri/nri.sock"
)

// settings are the values of an instance's templates, the settings of its main container, and its volumes.
type settings struct {
	values
	main    operand.Additions
	volumes []corev1.Volume
}

// setEnv adds a variable, unless the runtime has no such variable or the value is empty.
func (s *settings) setEnv(name, value string) {
	s.main.Env.AddIf(name != "" && value != "", name, value)
}

// mountDirOf mounts the directory of a file of the host, and returns the path of the file in the container, or "" if
// there is no file. create: the kubelet creates a missing directory.
func (s *settings) mountDirOf(name, file, at string, create bool) string {
	if file == "" {
		return ""
	}
	source := &corev1.HostPathVolumeSource{Path: path.Dir(file)}
	if create {
		source.Type = new(corev1.HostPathDirectoryOrCreate)
	}
	s.volumes = append(s.volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: source}})
	s.main.Mounts = append(s.main.Mounts, corev1.VolumeMount{Name: name, MountPath: at})
	return path.Join(at, path.Base(file))
}

// settingsOf returns the variables and mounts with which the toolkit accesses a runtime of this layout, and those of
// CDI.
func settingsOf(in operand.Input, layout nodeinfo.Layout) *settings {
	s := &settings{values: values{Layout: layout.Name, Runtime: runtimeNames[layout.Runtime].name}}
	s.addRuntimeAccess(in, layout)
	if in.CDIEnabled() {
		s.setEnv("CDI_ENABLED", labels.True)
		s.setEnv("NVIDIA_RUNTIME_SET_AS_DEFAULT", labels.False)
		s.setEnv("NVIDIA_CONTAINER_RUNTIME_MODE", "cdi")
		s.setEnv("CRIO_CONFIG_MODE", "config")
	}
	return s
}

// addRuntimeAccess adds the variables and mounts with which the toolkit accesses the container runtime.
func (s *settings) addRuntimeAccess(in operand.Input, layout nodeinfo.Layout) {
	names := runtimeNames[layout.Runtime]
	if layout.Runtime == nodeinfo.RuntimeContainerd {
		s.setEnv(envHandler, in.RuntimeClass())
	} else {
		// As the variable above for containerd: the handler of the RuntimeClass.
		s.setEnv("NVIDIA_RUNTIME_NAME", in.RuntimeClass())
	}
	if in.NRIEnabled() {
		s.setEnv("ENABLE_NRI_PLUGIN", labels.True)
		s.setEnv("NRI_SOCKET", s.mountDirOf("nri-socket", nriSocket, nriDir, true))
		return
	}
	layout = overridePaths(layout, in.Spec.Toolkit.Env)
	config := s.mountDirOf(names.name+"-config", layout.Config, configDir, true)
	s.setEnv(envConfig, config)
	s.setEnv(names.config, config)
	if layout.DropIn != "" {
		s.setEnv(envDropIn, s.mountDirOf(names.name+"-drop-in-config", layout.DropIn, dropInDir, true))
		s.setEnv(envDropInOnHost, layout.DropIn)
	}
	socket := s.mountDirOf(names.name+"-socket", layout.Socket, socketDir, false)
	s.setEnv(envSocket, socket)
	s.setEnv(names.socket, socket)
	// Docker reads its configuration without a restart, and the socket of CRI-O is not in the pod.
	s.Restarts = layout.Runtime == nodeinfo.RuntimeContainerd &&
		!slices.Contains(in.Spec.Toolkit.Env, noRestartEnv) && !disablesRestart(in.Spec.Toolkit.Args)
	s.Socket = socket
	s.setEnv(envSource, layout.ConfigSource)
	s.setEnv(envExecutable, layout.Executable)
	if layout.Runtime == nodeinfo.RuntimeCRIO && !in.CDIEnabled() {
		s.setEnv("CRIO_CONFIG_MODE", crioMode(in))
	}
	s.Hooks, s.HooksDir = true, layout.HooksDir
}

// disablesRestart reports whether the toolkit's arguments make it not restart the runtime.
func disablesRestart(args []string) bool {
	for i, arg := range args {
		if arg == strings.Join(noRestartArg, "=") || i > 0 && slices.Equal(args[i-1:i+1], noRestartArg) {
			return true
		}
	}
	return false
}

// crioMode is how the toolkit is configured in CRI-O without CDI: by an OCI hook where that is enough.
func crioMode(in operand.Input) string {
	if in.InjectsByHook() {
		return "hook"
	}
	return "config"
}
