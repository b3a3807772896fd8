package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host/standin"
)

// Paths of the programs in the operator's image.
const (
	gpuNodePath = "/usr/bin/gpu-node"
	cudaPath    = "/usr/bin/" + standin.CUDA
)

const defaultTerminationLog = "/dev/termination-log"

// mount maps a path in a container to a directory or file of this computer.
type mount struct {
	at, source string
}

// filesystem is the file system of a container.
type filesystem struct {
	// root is the container's root, which only has the mounts.
	root   string
	mounts []mount
}

// add adds a mount of the container. It replaces the default mount at the same path, as a container runtime does.
func (f *filesystem) add(own mount) {
	f.mounts = slices.DeleteFunc(f.mounts, func(m mount) bool { return m.at == own.at })
	f.mounts = append(f.mounts, own)
}

// locate returns the path on this computer of a path in the container.
func (f filesystem) locate(path string) string {
	best := mount{at: "", source: f.root}
	for _, m := range f.mounts {
		if within(path, m.at) && len(m.at) > len(best.at) {
			best = m
		}
	}
	return filepath.Join(best.source, strings.TrimPrefix(path, best.at))
}

// within reports whether path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// link links the mounts into the container's root, so that their parent directories contain them too. Mounts inside
// other mounts are only found by locate.
func (f filesystem) link() error {
	for _, m := range f.mounts {
		if f.nested(m) {
			continue
		}
		target := filepath.Join(f.root, m.at)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(m.source, target); err != nil {
			return err
		}
	}
	return nil
}

func (f filesystem) nested(m mount) bool {
	for _, other := range f.mounts {
		if other.at != m.at && within(m.at, other.at) {
			return true
		}
	}
	return false
}

// filesystem creates the file system for one run of a container: volumes, the kernel's file systems, which are the
// machine's in every container, the programs of the image, and the file for the termination message.
func (h *Host) filesystem(volumes volumes, c Container) (filesystem, error) {
	f := filesystem{root: filepath.Join(h.containerDir(c), "root")}
	if err := os.RemoveAll(f.root); err != nil {
		return f, err
	}
	f.mounts = []mount{
		{"/proc", h.Path("/proc")},
		{"/sys", h.Path("/sys")},
		{gpuNodePath, h.programs.GPUNode},
		{cudaPath, filepath.Join(h.imageDir(), standin.CUDA)},
		{terminationPath(c.Spec), h.terminationLog(c)},
	}
	for _, m := range c.Spec.VolumeMounts {
		source, err := volumes.source(m.Name)
		if err != nil {
			return f, err
		}
		f.add(mount{filepath.Clean(m.MountPath), filepath.Join(source, m.SubPath)})
	}
	if err := os.MkdirAll(f.root, 0o755); err != nil {
		return f, err
	}
	return f, errors.Join(f.link(), os.WriteFile(h.terminationLog(c), nil, 0o644))
}

func (h *Host) containerDir(c Container) string {
	return filepath.Join(h.podDir(c.Pod.UID), "containers", c.Spec.Name)
}

func (h *Host) terminationLog(c Container) string {
	return filepath.Join(h.containerDir(c), "termination-log")
}

func terminationPath(spec corev1.Container) string {
	if spec.TerminationMessagePath != "" {
		return spec.TerminationMessagePath
	}
	return defaultTerminationLog
}

// ensure checks or creates a hostPath as the kubelet and the container runtime do before they mount it.
func (h *Host) ensure(volume *corev1.HostPathVolumeSource) (string, error) {
	path, kind := h.Path(volume.Path), corev1.HostPathUnset
	if volume.Type != nil {
		kind = *volume.Type
	}
	info, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("stat hostPath %s: %w", volume.Path, err)
	case err == nil && mismatch(kind, info.IsDir()), err != nil && mustExist(kind):
		return "", fmt.Errorf("hostPath type check failed: %s is not a %s", volume.Path, kind)
	case err == nil:
		return path, nil
	case kind == corev1.HostPathFileOrCreate:
		return path, replace(path, "", 0o644)
	default:
		return path, os.MkdirAll(path, 0o755)
	}
}

// mustExist reports whether a hostPath of this type is never created.
func mustExist(kind corev1.HostPathType) bool {
	switch kind {
	case corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathFileOrCreate:
		return false
	default:
		return true
	}
}

func mismatch(kind corev1.HostPathType, isDir bool) bool {
	switch kind {
	case corev1.HostPathUnset:
		return false
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return !isDir
	default:
		return isDir
	}
}
