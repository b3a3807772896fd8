package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// WriteAllInOne writes the programs of the newest release and the pinned containerd, runc and CNI plugins into a copy
// of the cache, the folder .cache of the folder root, from which Start and EnsureNodeBinaries take them if
// PrebuiltVariable is set. etcd, Kubernetes' programs and the kubelet are links to one program, that of
// test/controlplane/allinone; containerd, its shim and ctr are links to that of test/node/runtime/allinone; kwok is
// missing. It writes a line to progress for each program that it builds.
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
	fmt.Fprintf(progress, "building Kubernetes %s as one program, and containerd as one ...\n", rel.version)
	kubernetes := allInOne{
		dir: filepath.Join(repository, "test", "controlplane"), pkg: "./allinone",
		flags: tool{module: kubernetesModule, version: rel.version}.linkerFlags(),
		files: []string{
			filepath.Join(controlPlane, "etcd"), filepath.Join(controlPlane, "kube-apiserver"),
			filepath.Join(controlPlane, "kube-controller-manager"), filepath.Join(controlPlane, "kube-scheduler"),
			filepath.Join(runtime, "kubelet"),
		},
	}
	containerd := allInOne{
		dir: filepath.Join(repository, "test", "node", "runtime"), pkg: "./allinone", flags: tool{}.linkerFlags(),
	}
	for _, name := range containerdPrograms {
		containerd.files = append(containerd.files, filepath.Join(runtime, name))
	}
	for _, program := range []allInOne{kubernetes, containerd} {
		if err := program.write(ctx); err != nil {
			return err
		}
	}
	return copyRuntime(repository, built, runtime)
}

// containerdPrograms are the programs of containerd that are one in the copy of the cache.
var containerdPrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr"}

// allInOne is a program that is several, by the name under which it is started.
type allInOne struct {
	// dir is the folder of the module that pins the versions, pkg the package that is built; flags are the linker's.
	dir, pkg, flags string
	// env are further variables of the build.
	env []string
	// files are to be written, as links to one.
	files []string
}

// write builds the program in the first of its files, and links the others to it.
func (a allInOne) write(ctx context.Context) error {
	if err := goBuild(ctx, a.dir, a.files[0], a.flags, a.pkg, a.env...); err != nil {
		return err
	}
	for _, link := range a.files[1:] {
		if err := os.Link(a.files[0], link); err != nil {
			return fmt.Errorf("make a copy of the cache: %w", err)
		}
	}
	return nil
}

// copyRuntime copies the programs of a node that are not part of another one: runc and the CNI plugins.
func copyRuntime(repository, from, to string) error {
	tools, err := nodeTools(repository)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if t.name == "kubelet" || slices.Contains(containerdPrograms, t.name) {
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
