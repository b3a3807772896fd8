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
		err = pack(ctx, *out, *archive, released, os.Stderr)
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
	".cache/controlplane/", "images/", "test/", "bin/", ".cache/",
}

// packing is how an archive is compressed.
type packing struct {
	// dictionary is how far back the compression looks, as xz writes it. That needs eleven times as much memory.
	dictionary string
	// limit is the largest size of an archive, in bytes: a larger one cannot be carried to a machine with a GPU.
	limit int64
}

var released = packing{dictionary: "256MiB", limit: 60 << 20}

// claims begins the names of the files for which the first archive has no room: the image of the DRA driver.
const claims = "images/dra-driver"

// pack writes the archive of a folder, and one of the same name with -dra of what is only for resource claims.
func pack(ctx context.Context, dir, archive string, p packing, progress io.Writer) error {
	files, err := list(dir)
	if err != nil {
		return err
	}
	further := slices.Clone(files)
	further = slices.DeleteFunc(further, func(path string) bool { return !strings.HasPrefix(path, claims) })
	files = slices.DeleteFunc(files, func(path string) bool { return strings.HasPrefix(path, claims) })
	if err := packFiles(ctx, dir, files, archive, p, progress); err != nil || len(further) == 0 {
		return err
	}
	name, found := strings.CutSuffix(archive, ".tar.xz")
	if !found {
		return fmt.Errorf("the name of the archive %s must end with .tar.xz", archive)
	}
	return packFiles(ctx, dir, further, name+"-dra.tar.xz", p, progress)
}

// packFiles writes an archive of some files of a folder, and cuts it if it is too large for one file. Pieces of an
// earlier archive are removed.
func packFiles(ctx context.Context, dir string, files []string, archive string, p packing, progress io.Writer) error {
	fmt.Fprintln(progress, "compressing ...")
	begin := time.Now()
	if err := errors.Join(removePieces(archive), compress(ctx, dir, files, archive, p.dictionary)); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	info, err := os.Stat(archive)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	fmt.Fprintf(progress, "%s: %.1f MiB, compressed in %s\n", archive, mebibytes(info.Size()),
		time.Since(begin).Round(time.Second))
	switch size := info.Size(); {
	case size > p.limit:
		return errors.Join(os.Remove(archive),
			fmt.Errorf("%s is too large: %.1f MiB, the limit is %.1f MiB", archive, mebibytes(size), mebibytes(p.limit)))
	case size <= most:
		return nil
	}
	pieces, err := cut(archive, most)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "the same in pieces: %s\n", strings.Join(pieces, " "))
	return nil
}

func mebibytes(size int64) float64 { return float64(size) / (1 << 20) }

// compress writes files of a folder into an archive.
func compress(ctx context.Context, dir string, files []string, archive, dictionary string) error {
	tar := exec.CommandContext(ctx, "tar", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--no-recursion",
		"--transform=s,^,"+filepath.Base(dir)+"/,S", "-C", dir, "-cf", "-", "-T", "-")
	tar.Stdin = strings.NewReader(strings.Join(files, "\n") + "\n")
	xz := exec.CommandContext(ctx, "xz", "--compress", "--stdout", "--threads=1", "--x86",
		"--lzma2=preset=6,nice=128,dict="+dictionary)
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	tar.Stderr, tar.Stdout = os.Stderr, write
	xz.Stderr, xz.Stdin, xz.Stdout = os.Stderr, read, file
	err = errors.Join(tar.Start(), xz.Start())
	// Each ends with the other only if this process does not hold the pipe open.
	err = errors.Join(err, write.Close(), read.Close())
	for _, command := range []*exec.Cmd{tar, xz} {
		if command.Process != nil {
			err = errors.Join(err, command.Wait())
		}
	}
	return errors.Join(err, file.Close())
}

// removePieces removes the pieces of an archive.
func removePieces(archive string) error {
	pieces, err := filepath.Glob(archive + ".[0-9]*")
	for _, piece := range pieces {
		err = errors.Join(err, os.Remove(piece))
	}
	return err
}

// cut writes the content of a file into pieces of a size, in bytes, whose names end with .00, .01 and so on, and
// returns their names.
func cut(path string, size int64) ([]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cut the archive: %w", err)
	}
	var pieces []string
	for part := range slices.Chunk(content, int(size)) {
		piece := fmt.Sprintf("%s.%02d", path, len(pieces))
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
