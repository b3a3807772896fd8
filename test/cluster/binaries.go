package cluster

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/filelock"
)

// EnsureBinaries returns the folder with the programs of one Kubernetes release, and builds those that are missing or
// not of the pinned version. The version is Newest, Oldest, Next or a pinned one such as v1.36.3; if empty, that of
// VersionVariable, else Newest, except for the programs in AssetsVariable. It writes a line to progress for each tool
// that it builds. Concurrent processes wait for each other.
func EnsureBinaries(ctx context.Context, version string, progress io.Writer) (dir string, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	rel, err := findRelease(root, version)
	if err != nil {
		return "", err
	}
	return rel.dir, rel.ensure(ctx, progress)
}

// PrebuiltVariable is set where all programs lie ready, without Go, as in the bundle of make gpu-bundle: then none is
// built, and their versions are not read.
const PrebuiltVariable = "TEST_PREBUILT"

// ensure builds the tools that are missing in dir.
func ensure(ctx context.Context, dir string, tools []tool, progress io.Writer) error {
	if os.Getenv(PrebuiltVariable) != "" || len(missing(dir, tools)) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	unlock, err := filelock.Lock(filepath.Join(filepath.Dir(dir), "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// Check again: another process may have built them while this one waited for the lock.
	for _, t := range missing(dir, tools) {
		fmt.Fprintf(progress, "building %s %s (first time only, about %s) ...\n", t.name, t.version, t.cold)
		if err := t.build(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// missing lists the tools that dir does not have in the pinned version. The version is read from the build
// information in the binary, which cannot disagree with it, unlike a stamp file.
func missing(dir string, tools []tool) []tool {
	var missing []tool
	for _, t := range tools {
		info, err := buildinfo.ReadFile(filepath.Join(dir, t.name))
		if err != nil || info.Main.Path != t.module || info.Main.Version != t.version {
			missing = append(missing, t)
		}
	}
	return missing
}

// build compiles one tool.
func (t tool) build(ctx context.Context, dir string) error {
	var env []string
	if t.environment != nil {
		var err error
		if env, err = t.environment(ctx, dir); err != nil {
			return fmt.Errorf("prepare to build %s: %w", t.name, err)
		}
	}
	return goBuild(ctx, t.dir, filepath.Join(dir, t.name), t.linkerFlags(), t.pkg, env...)
}

// buildFlags are the flags of each build. Without version control data, which Git refuses for another user's checkout.
const buildFlags = "-buildvcs=false -trimpath"

// goBuild builds one program in the module that dir belongs to, without cgo unless env enables it. It compiles under a
// temporary name and renames: a cancelled build leaves no partial program, and another process may run the old one.
func goBuild(ctx context.Context, dir, output, ldflags, pkg string, env ...string) error {
	temp := filepath.Join(filepath.Dir(output), "."+filepath.Base(output)+".building")
	defer func() { _ = os.Remove(temp) }()
	// The go command links again only if a program that exists is not that of the sources. It replaces it then, and the
	// old one stays what it was. Without an old one, there is nothing to link to.
	_ = os.Link(output, temp)
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", ldflags, "-o", temp, pkg)
	cmd.Dir = dir
	// Only the module pins versions: ignore a workspace and flags meant for another module.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="+buildFlags)
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, stderr.Bytes())
	}
	if err := os.Rename(temp, output); err != nil {
		return fmt.Errorf("keep %s: %w", filepath.Base(output), err)
	}
	return nil
}
