//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	// playedDriver is the version that the played NVML has, gpus how many GPUs it shows. test/node has the same.
	playedDriver = "580.95.05"
	gpus         = 4
)

// script is what the machine starts. It needs a shell of any kind.
const script = "#!/bin/sh\nexec \"$(cd \"$(dirname \"$0\")\" && pwd)/bin/run\" \"$@\"\n"

// bundle is a folder that is being filled.
type bundle struct {
	dir      string
	progress io.Writer
}

// assemble writes the bundle into a folder. It runs in the root of this repository.
func assemble(ctx context.Context, dir string, progress io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	b := bundle{dir: dir, progress: progress}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(b.path("bin"), 0o755),
		os.WriteFile(b.path("run.sh"), []byte(script), 0o755)); err != nil {
		return fmt.Errorf("make the bundle: %w", err)
	}
	for _, part := range []func(context.Context) error{b.sources, b.programs, b.tests, b.images, b.played} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("make the bundle: %w", err)
		}
	}
	return nil
}

func (b bundle) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

// sources copies what the tests read of this repository.
func (b bundle) sources(context.Context) error {
	for _, path := range []string{
		"LICENSE", "go.mod", "test/controlplane/go.mod", "test/controlplane/oldest/go.mod", "test/node/runtime/go.mod",
	} {
		if err := copyFile(path, b.path(path), 0o644); err != nil {
			return err
		}
	}
	for _, dir := range []string{"admission", "crd", "default", "manager", "rbac"} {
		if err := os.CopyFS(b.path("config", dir), os.DirFS(filepath.Join("config", dir))); err != nil {
			return err
		}
	}
	return nil
}

// programs builds the programs that run on the machine itself.
func (b bundle) programs(ctx context.Context) error {
	if err := cluster.WriteAllInOne(ctx, b.dir, b.progress); err != nil {
		return err
	}
	standIn, err := cluster.BuildNodeStandIn(ctx, b.progress)
	if err != nil {
		return err
	}
	if err := copyFile(standIn, b.path("bin", "stand-in"), 0o755); err != nil {
		return err
	}
	return b.goTool(ctx, "build", "-o", b.path("bin")+"/", "./test/gpubundle/run")
}

// tests compiles the tests into the folders of their packages, where they expect to run.
func (b bundle) tests(ctx context.Context) error {
	for _, name := range []string{"node", "gpu"} {
		if err := os.MkdirAll(b.path("test", name), 0o755); err != nil {
			return err
		}
		out := b.path("test", name, name+".test")
		if err := b.goTool(ctx, "test", "-c", "-vet=off", "-o", out, "./test/"+name); err != nil {
			return err
		}
	}
	return nil
}

// goTool builds something as the image's programs are built: without cgo, names and debug information.
func (b bundle) goTool(ctx context.Context, args ...string) error {
	args = append([]string{args[0], "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, args[1:]...)
	fmt.Fprintln(b.progress, "go", strings.Join(args, " "), "...")
	command := exec.CommandContext(ctx, "go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// images writes the operator's image and those with NVIDIA's programs. The operator's programs for nodes are in bin,
// too.
func (b bundle) images(ctx context.Context) (err error) {
	temp, err := os.MkdirTemp("", "gpu-operator-images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	programs, rootfs := filepath.Join(temp, "programs"), filepath.Join(temp, "rootfs")
	if err := cluster.WriteNVIDIAPrograms(ctx, programs, b.progress, node.HostDriverPrograms()...); err != nil {
		return err
	}
	operator, err := node.RawOperatorImage(ctx, ".", rootfs)
	if err != nil {
		return err
	}
	// That of the DRA driver is the last one: without its archive the others have all of their files.
	images, err := node.HostDriverImages(programs)
	if err != nil {
		return err
	}
	store := node.NewStore(b.path("images"))
	for _, image := range append([]node.Image{operator}, images...) {
		if err := store.Add(image); err != nil {
			return err
		}
	}
	for _, program := range []string{"gpu-node", "gpu-node-cuda"} {
		// A link costs nothing in the archive.
		if err := os.Link(b.path("images", "gpu-operator", "usr", "bin", program), b.path("bin", program)); err != nil {
			return err
		}
	}
	return nil
}

// played writes the played driver: for programs of this machine into played/bin and played/lib, and for the node, as it
// lies below its /usr, into played/usr.
func (b bundle) played(ctx context.Context) error {
	if err := os.MkdirAll(b.path("played"), 0o755); err != nil {
		return err
	}
	stack, err := fakegpu.BuildIn(ctx, b.path("played"))
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		fakegpu.GPUs: strings.Repeat("gpu ", gpus), fakegpu.Model: "h100", fakegpu.NVML: "",
	} {
		if err := os.WriteFile(filepath.Join(stack.Lib, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	standIn, usr := b.path("bin", "stand-in"), b.path("played", "usr")
	if err := node.PlayDriver(stack.Lib, standIn, playedDriver, usr); err != nil {
		return err
	}
	smi := filepath.Join(usr, "bin", "nvidia-smi")
	return errors.Join(os.Remove(smi), os.Link(standIn, smi))
}

// copyFile copies a file with its folders.
func copyFile(from, to string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, mode))
}
