//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildOperatorImage builds the operator's image from the sources in repository, like "make image-tar", and writes it
// to the file out as an archive for Import. Where the released image has a base with a C library, this one has the
// library of this computer.
func BuildOperatorImage(ctx context.Context, repository, name, out string, progress io.Writer) (err error) {
	fmt.Fprintln(progress, "building the operator's image ...")
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	rootfs, err := os.MkdirTemp("", "gpu-operator-rootfs-")
	if err != nil {
		return fmt.Errorf("make the operator's image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(rootfs)) }()
	sources := filepath.Join(repository, "config", "image")
	if err := call(ctx, sources, "./build.sh", "rootfs", rootfs); err != nil {
		return err
	}
	libraries, err := Libraries(filepath.Join(rootfs, "usr", "bin", "gpu-node-cuda"))
	if err != nil {
		return fmt.Errorf("make the operator's image: %w", err)
	}
	for place, source := range libraries {
		if err := copyFile(source, filepath.Join(rootfs, place)); err != nil {
			return fmt.Errorf("make the operator's image: %w", err)
		}
	}
	return call(ctx, sources, "go", "run", ".", "--rootfs="+rootfs, "--name="+name, "--out="+out)
}

// copyFile copies a program or a library.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
}

// call runs a command; the error has its output.
func call(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
