package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/filelock"
)

// ErrNoCommit is the error of Earlier for a clone without the commit, such as a shallow one or an archive.
var ErrNoCommit = errors.New("the clone does not have the commit")

// EarlierRelease is the project as of a commit.
type EarlierRelease struct {
	// Dir has its files, and Operator is the path of its manager.
	Dir, Operator string
}

// Earlier returns the project as of a commit, with its manager, which it builds unless it is in the cache.
func Earlier(ctx context.Context, commit string, progress io.Writer) (*EarlierRelease, error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, ".cache", "releases", commit)
	unlock, err := filelock.Lock(dir + ".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	release := &EarlierRelease{Dir: filepath.Join(dir, "source"), Operator: filepath.Join(dir, "gpu-operator")}
	if _, err := os.Stat(release.Operator); err == nil {
		return release, nil
	}
	if err := checkOut(ctx, root, commit, release.Dir); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "building gpu-operator of %s ...\n", commit)
	if err := goBuild(ctx, release.Dir, release.Operator, "-s -w", "./cmd/gpu-operator"); err != nil {
		return nil, err
	}
	return release, nil
}

// checkOut writes the files of a commit to a folder. Unlike a worktree they leave nothing in the user's repository.
func checkOut(ctx context.Context, root, commit, dir string) error {
	exists := exec.CommandContext(ctx, "git", "cat-file", "-e", commit+"^{commit}")
	exists.Dir = root
	if exists.Run() != nil {
		return fmt.Errorf("%w %s", ErrNoCommit, commit)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("check out %s: %w", commit, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("check out %s: %w", commit, err)
	}
	archive := exec.CommandContext(ctx, "git", "archive", "--format=tar", commit)
	archive.Dir = root
	files, err := archive.Output()
	if err != nil {
		return fmt.Errorf("read the files of %s: %w", commit, err)
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(files)
	if output, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("write the files of %s: %w\n%s", commit, err, output)
	}
	return nil
}
