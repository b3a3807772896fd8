package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// mostLinks limits the symbolic links in a path, like the kernel does.
const mostLinks = 40

var errTooManyLinks = errors.New("too many symbolic links")

// host is the root of the host.
type host struct{ root *os.Root }

// openDirectory opens a directory of the operating system, and returns its path on the host without symbolic links. It
// follows them as the host does: an absolute one leads to the host's root, not to this container's.
func (h host) openDirectory(dir string) (*os.Root, string, error) {
	resolved, err := h.resolve(dir)
	if err != nil {
		return nil, "", err
	}
	opened, err := h.root.OpenRoot(resolved)
	if info, statErr := h.root.Lstat(resolved); err != nil && statErr == nil && !info.IsDir() {
		err = syscall.ENOTDIR // OpenRoot has an error of its own for a file.
	}
	return opened, path.Join("/", resolved), err
}

// resolve returns the path without symbolic links, relative to the host's root.
func (h host) resolve(dir string) (string, error) {
	done, rest, links := ".", elements(dir), 0
	for len(rest) > 0 {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		if strings.HasPrefix(next, "..") {
			continue // The root is its own parent.
		}
		info, err := h.root.Lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > mostLinks {
			return "", fmt.Errorf("%s: %w", dir, errTooManyLinks)
		}
		target, err := h.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "."
		}
		rest = append(elements(target), rest...)
	}
	return done, nil
}

// elements returns the elements of a path.
func elements(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// readFile reads a file of the host whose path the program or the kernel knows; nil if it cannot be read.
func (h host) readFile(name string) []byte {
	content, err := h.root.ReadFile(strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil
	}
	return content
}
