package cluster

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
)

// nodeCache is the cache folder for the programs of a real node.
const nodeCache = "node"

// EnsureNodeBinaries returns the folder with the programs of a real node, and builds those that are missing or not of
// the pinned version: kubelet of the newest supported release, containerd with its shim and ctr, runc, and the CNI
// plugins bridge, host-local and loopback. It writes a line to progress for each program that it builds. Concurrent
// processes wait for each other.
//
// All are Go modules. runc also needs a C compiler and libseccomp with its headers, from the system or from Debian's
// package libseccomp-dev, which is not installed.
func EnsureNodeBinaries(ctx context.Context, progress io.Writer) (dir string, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	tools, err := nodeTools(root)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", nodeCache, "bin")
	return dir, ensure(ctx, dir, tools, progress)
}

func nodeTools(root string) ([]tool, error) {
	const (
		containerd = "github.com/containerd/containerd/v2"
		cni        = "github.com/containernetworking/plugins"
		runc       = "github.com/opencontainers/runc"
	)
	tools := []tool{
		{name: "kubelet", module: kubernetesModule, pkg: kubernetesModule + "/cmd/kubelet", cold: "2 min"},
		{name: "containerd", module: containerd, pkg: containerd + "/cmd/containerd", cold: "1 min"},
		{name: "containerd-shim-runc-v2", module: containerd, pkg: containerd + "/cmd/containerd-shim-runc-v2", cold: "10 s"},
		{name: "ctr", module: containerd, pkg: containerd + "/cmd/ctr", cold: "10 s"},
		{name: "runc", module: runc, pkg: runc, cold: "20 s", environment: withSeccomp},
		{name: "bridge", module: cni, pkg: cni + "/plugins/main/bridge", cold: "10 s"},
		{name: "loopback", module: cni, pkg: cni + "/plugins/main/loopback", cold: "5 s"},
		{name: "host-local", module: cni, pkg: cni + "/plugins/ipam/host-local", cold: "5 s"},
	}
	for i := range tools {
		t := &tools[i]
		t.dir = filepath.Join(root, "test", "node", "runtime")
		if t.module == kubernetesModule {
			t.dir = filepath.Join(root, "test", "controlplane")
		}
		var err error
		if t.version, err = requiredVersion(t.dir, t.module); err != nil {
			return nil, fmt.Errorf("find the version of %s: %w", t.name, err)
		}
	}
	return tools, nil
}
