//go:build linux

package node

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryDirs are where a Linux system has its shared libraries, besides folders for one architecture.
var libraryDirs = []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64"}

// Libraries returns what a dynamically linked program of this computer needs to start: the loader and the shared
// libraries, by their places in an image, without the leading slash. A static program needs nothing.
func Libraries(program string) (map[string]string, error) {
	found := map[string]string{}
	if err := addLibraries(found, program); err != nil {
		return nil, fmt.Errorf("find the shared libraries of %s: %w", program, err)
	}
	return found, nil
}

func addLibraries(found map[string]string, path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	needed, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	if section := file.Section(".interp"); section != nil {
		loader, err := section.Data()
		if err != nil {
			return err
		}
		source := strings.TrimRight(string(loader), "\x00")
		found[strings.TrimPrefix(source, "/")] = source
	}
	for _, name := range needed {
		source, err := findLibrary(name)
		if err != nil {
			return err
		}
		place := strings.TrimPrefix(source, "/")
		if _, known := found[place]; known {
			continue
		}
		found[place] = source
		if err := addLibraries(found, source); err != nil {
			return err
		}
	}
	return nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		folders, err := filepath.Glob(filepath.Join(dir, "*-linux-gnu"))
		if err != nil {
			return "", err
		}
		for _, folder := range slices.Concat(folders, []string{dir}) {
			path := filepath.Join(folder, name)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			} else if !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
	}
	return "", fmt.Errorf("%s is not in %s", name, strings.Join(libraryDirs, ", "))
}
