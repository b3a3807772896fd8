//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	out := flag.String("out", "dist/gpu-bundle", "folder of the bundle, which is replaced")
	archive := flag.String("archive", "", "file of the archive, such as dist/gpu-bundle.tar.xz; none if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := assemble(ctx, *out, os.Stderr)
	if err == nil && *archive != "" {
		err = pack(ctx, *out, *archive, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpubundle:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called.
	}
}

// most is the largest size of a file that is carried to the machine, in bytes. An archive that is larger is cut.
const most = 45 << 20

// ranks order the files of the archive: those that have much in common lie near each other, where the compression
// finds it. Files without a rank come last.
var ranks = []string{
	".cache/controlplane/", "images/", "bin/", "test/", ".cache/node/bin/containerd", ".cache/node/bin/ctr", ".cache/",
}

// pack writes the archive of a folder, and cuts it if it is too large for one file.
func pack(ctx context.Context, dir, archive string, progress io.Writer) error {
	files, err := list(dir)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "compressing ...")
	begin := time.Now()
	tar := exec.CommandContext(ctx, "tar", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--no-recursion",
		"--transform=s,^,"+filepath.Base(dir)+"/,S", "-C", dir, "-cf", "-", "-T", "-")
	tar.Stdin = strings.NewReader(strings.Join(files, "\n") + "\n")
	xz := exec.CommandContext(ctx, "xz", "--compress", "--stdout", "--threads=1", "--x86",
		"--lzma2=preset=6,dict=256MiB")
	file, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	defer file.Close()
	tar.Stderr, xz.Stderr, xz.Stdout = os.Stderr, os.Stderr, file
	if xz.Stdin, err = tar.StdoutPipe(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := errors.Join(tar.Start(), xz.Run(), tar.Wait()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	fmt.Fprintf(progress, "%s: %.1f MiB, compressed in %s\n", archive, float64(info.Size())/(1<<20),
		time.Since(begin).Round(time.Second))
	if info.Size() <= most {
		return nil
	}
	pieces, err := cut(archive, most)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "the same in pieces: %s\n", strings.Join(pieces, " "))
	return nil
}

// cut writes the content of a file into pieces of a size, in bytes, whose names end with .0, .1 and so on, and returns
// their names. Earlier pieces are removed.
func cut(path string, size int64) ([]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cut the archive: %w", err)
	}
	earlier, err := filepath.Glob(path + ".[0-9]")
	for _, piece := range earlier {
		err = errors.Join(err, os.Remove(piece))
	}
	var pieces []string
	for part := range slices.Chunk(content, int(size)) {
		piece := fmt.Sprintf("%s.%d", path, len(pieces))
		err = errors.Join(err, os.WriteFile(piece, part, 0o644))
		pieces = append(pieces, piece)
	}
	if err != nil {
		return nil, fmt.Errorf("cut the archive: %w", err)
	}
	return pieces, nil
}

// list returns the paths of all files, links and folders below a folder, in the order of their ranks.
func list(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, relative)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the files of the bundle: %w", err)
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return files, nil
}

func rank(path string) int {
	at := slices.IndexFunc(ranks, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	if at < 0 {
		return len(ranks)
	}
	return at
}
