//go:build linux

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder is a folder of the machine whose files are compared.
type folder struct {
	path string
	// content is whether the content of files is compared, too. Other programs of the machine write to those of most
	// folders.
	content bool
	// ours matches those paths below the folder, or targets of links there, that a run may leave. Others are read only to
	// depth, and do not count. Nil if all count.
	ours *regexp.Regexp
}

// depth is how many levels of names that are not ours are read.
const depth = 2

// watched are the folders whose files are compared. Of /dev, the devices that nvidia-modprobe makes when a program
// first uses CUDA are the driver's.
var watched = []folder{
	{path: "/etc", content: true},
	{path: "/run", ours: regexp.MustCompile(
		`^(nvidia|cdi|cni|containerd|netns|kubelet|kubernetes|machine|mellanox|gpu-node-started)(/|$)`)},
	{path: "/var/lib", ours: regexp.MustCompile(`^(kubelet|containerd|cni|mps|stand-in[a-z-]*)(/|$)`)},
	{path: "/dev", ours: regexp.MustCompile(`(^|/)nvidia([0-9]+|ctl)$`)},
}

// stores are folders in which the machine's own container runtimes and kubelet keep millions of files that come and go.
// They are compared as one file each.
var stores = []string{
	"/run/containerd", "/run/docker", "/run/netns", "/var/lib/cni", "/var/lib/containerd", "/var/lib/containers",
	"/var/lib/docker", "/var/lib/kubelet",
}

// unreadable is the value of a file that the machine does not let this program read.
const unreadable = "unreadable"

// addFiles adds the files below a folder, those of other file systems and below some paths excepted. Those that
// disappear meanwhile are left out. The mounts must have been added.
func (s snapshot) addFiles(f folder, without ...string) {
	err := filepath.WalkDir(f.path, func(path string, entry fs.DirEntry, err error) error {
		if slices.Contains(without, path) {
			return skip(entry)
		}
		return s.addFile(f, path, entry, err)
	})
	s.note(kindFile, err)
}

// addFile adds a file below a folder, for filepath.WalkDir. FUSE refuses even root: that ends no walk.
func (s snapshot) addFile(f folder, path string, entry fs.DirEntry, err error) error {
	name := item{kindFile, path}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		s.values[name] = unreadable
		return skip(entry)
	}
	s.values[name] = value(path, entry, f.content)
	if path == f.path {
		return nil
	}
	relative, err := filepath.Rel(f.path, path)
	if err != nil {
		return err
	}
	_, mounted := s.values[item{kindMount, path}]
	deep := f.ours != nil && !f.ours.MatchString(relative) && strings.Count(relative, "/")+1 >= depth
	if mounted || deep || slices.Contains(stores, path) {
		return skip(entry)
	}
	return nil
}

// skip makes filepath.WalkDir go on after a file or folder. Its SkipDir would leave out what stands beside a file.
func skip(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// value returns the target of a link, a digest of a file's content, or the type of the file.
func value(path string, entry fs.DirEntry, content bool) string {
	switch {
	case entry.Type() == fs.ModeSymlink:
		if target, err := os.Readlink(path); err == nil {
			return target
		}
	case content && entry.Type().IsRegular():
		text, err := os.ReadFile(path)
		if err != nil {
			return unreadable
		}
		return fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return entry.Type().String()
}

// isOurs reports whether an item with a value that has changed since this snapshot may have been changed by a run. In
// folders that all programs use only names count which the operator, a kubelet and a container runtime use, unless the
// machine had them before.
func (s snapshot) isOurs(i item, value string) bool {
	if i.kind != kindFile && i.kind != kindMount {
		return true
	}
	for _, store := range stores {
		if _, had := s.values[item{kindFile, store}]; had && strings.HasPrefix(i.name, store+"/") {
			return false
		}
	}
	for _, f := range watched {
		relative, below := strings.CutPrefix(i.name, f.path+"/")
		if below && f.ours != nil {
			return f.ours.MatchString(relative) || f.ours.MatchString(value)
		}
	}
	return true
}
