package effective

import "strings"

// HostPaths are the directories on the hosts.
type HostPaths struct {
	// RootFS is the root of the host.
	RootFS string
	// DevChar is the directory with links to character devices.
	DevChar string
	// DriverInstallDir is where the root file system of the driver container is mounted.
	DriverInstallDir string
	// ToolkitInstallDir is where the toolkit installs its binaries.
	ToolkitInstallDir string
	// KubeletRootDir is the kubelet's --root-dir, without a trailing slash.
	KubeletRootDir string
}

// Paths returns the paths of spec.hostPaths and spec.toolkit.installDir.
func (s Spec) Paths() HostPaths {
	paths := HostPaths{
		RootFS:            s.HostPaths.RootFS,
		DriverInstallDir:  s.HostPaths.DriverInstallDir,
		ToolkitInstallDir: s.Toolkit.InstallDir,
		KubeletRootDir:    strings.TrimRight(s.HostPaths.KubeletRootDir, "/"),
	}
	paths.DevChar = paths.OnHost("/dev/char")
	return paths
}

// OnHost returns the path of a host file below RootFS.
func (p HostPaths) OnHost(path string) string { return strings.TrimSuffix(p.RootFS, "/") + path }
