//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/process"
)

// OperatorImage and OperatorTag name the operator's image in tests. The tag is not latest, which kubelets always pull.
const OperatorImage, OperatorTag = "ghcr.io/clusterpolicy/gpu-operator", "node-test"

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
	if err := buildRootFS(ctx, repository, rootfs); err != nil {
		return err
	}
	return process.Run(ctx, filepath.Join(repository, "config", "image"), "go", "run", ".", "--rootfs="+rootfs,
		"--name="+name, "--out="+out)
}

// buildRootFS builds what is in the operator's image into an empty folder, with the C library of this computer.
func buildRootFS(ctx context.Context, repository, rootfs string) error {
	if err := process.Run(ctx, filepath.Join(repository, "config", "image"), "./build.sh", "rootfs", rootfs); err != nil {
		return err
	}
	libraries, err := Libraries(filepath.Join(rootfs, "usr", "bin", "gpu-node-cuda"))
	if err != nil {
		return fmt.Errorf("make the operator's image: %w", err)
	}
	whole, err := cLibrary()
	if err != nil {
		return fmt.Errorf("make the operator's image: %w", err)
	}
	maps.Copy(libraries, whole)
	for place, source := range libraries {
		if err := copyFile(source, filepath.Join(rootfs, place)); err != nil {
			return fmt.Errorf("make the operator's image: %w", err)
		}
	}
	return nil
}

// RawOperatorImage returns the operator's image as that of BuildOperatorImage with layers that are not compressed. The
// folder rootfs, which must be empty, gets its files.
func RawOperatorImage(ctx context.Context, repository, rootfs string) (Image, error) {
	if err := buildRootFS(ctx, repository, rootfs); err != nil {
		return Image{}, err
	}
	i := Image{
		Names: []string{OperatorImage + ":" + OperatorTag}, Files: map[string]string{}, Links: map[string]string{},
		Entrypoint: []string{"/usr/bin/gpu-operator"}, User: "65532:65532",
	}
	err := filepath.WalkDir(rootfs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		place, err := filepath.Rel(rootfs, path)
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink == 0 {
			i.Files[place] = path
			return nil
		}
		i.Links[place], err = os.Readlink(path)
		return err
	})
	if err != nil {
		return Image{}, fmt.Errorf("make the operator's image: %w", err)
	}
	return i, nil
}

// copyFile copies a program or a library.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
}
