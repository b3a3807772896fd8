package cluster

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
)

// EnsureNFDBinaries returns the folder with the programs of Node Feature Discovery, nfd-master, nfd-worker and nfd-gc,
// and builds those that are missing or not of the version pinned in test/nfd/programs. It writes a line to progress for
// each program that it builds. Concurrent processes wait for each other.
//
// nfd-worker reads the root file system of its node in its working directory, where that of NVIDIA's image has it
// mounted with the prefix /host-. Only /proc is this machine's.
func EnsureNFDBinaries(ctx context.Context, progress io.Writer) (dir string, err error) {
	const module = "sigs.k8s.io/node-feature-discovery"
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "test", "nfd", "programs")
	version, err := requiredVersion(source, module)
	if err != nil {
		return "", fmt.Errorf("find the version of Node Feature Discovery: %w", err)
	}
	var tools []tool
	for _, name := range []string{"nfd-master", "nfd-worker", "nfd-gc"} {
		tools = append(tools, tool{
			name: name, module: module, pkg: module + "/cmd/" + name, dir: source, version: version, cold: "30 s",
			variables: map[string]string{
				module + "/pkg/version.version":           version,
				module + "/pkg/utils/hostpath.pathPrefix": "./",
			},
		})
	}
	dir = filepath.Join(root, ".cache", "nfd", "bin")
	return dir, ensure(ctx, dir, tools, progress)
}
