package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteAllInOne writes the programs of the newest release and the pinned containerd, runc and CNI plugins into a copy
// of the cache, the folder .cache of the folder root, from which Start and EnsureNodeBinaries take them if
// PrebuiltVariable is set. etcd, Kubernetes' programs and the kubelet are links to one program, that of
// test/controlplane/allinone; kwok is missing. It writes a line to progress for each program that it builds.
func WriteAllInOne(ctx context.Context, root string, progress io.Writer) error {
	repository, err := repositoryRoot()
	if err != nil {
		return err
	}
	rel, err := findPinned(repository, Newest)
	if err != nil {
		return err
	}
	built, err := EnsureNodeBinaries(ctx, progress)
	if err != nil {
		return err
	}
	controlPlane := filepath.Join(root, ".cache", "controlplane", rel.version)
	runtime := filepath.Join(root, ".cache", nodeCache, "bin")
	for _, dir := range []string{controlPlane, runtime} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a copy of the cache: %w", err)
		}
	}
	program := filepath.Join(controlPlane, "etcd")
	fmt.Fprintf(progress, "building Kubernetes %s as one program ...\n", rel.version)
	flags := tool{module: kubernetesModule, version: rel.version}.linkerFlags()
	dir := filepath.Join(repository, "test", "controlplane")
	if err := goBuild(ctx, dir, program, flags, "./allinone"); err != nil {
		return err
	}
	kubelet := filepath.Join(runtime, "kubelet")
	links := []string{kubelet}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		links = append(links, filepath.Join(controlPlane, name))
	}
	for _, link := range links {
		if err := os.Link(program, link); err != nil {
			return fmt.Errorf("make a copy of the cache: %w", err)
		}
	}
	return copyRuntime(repository, built, runtime)
}

// copyRuntime copies the programs of a node but the kubelet.
func copyRuntime(repository, from, to string) error {
	tools, err := nodeTools(repository)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if t.name == "kubelet" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from, t.name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, t.name), content, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make a copy of the cache: %w", err)
		}
	}
	return nil
}
