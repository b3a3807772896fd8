//go:build linux

package node

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Store is a folder of images. What several images have is in it once, with the first of them.
type Store struct {
	dir string
	// files are the paths in the folder by what is in them.
	files map[[sha256.Size]byte]string
}

// NewStore returns the store in a folder, which need not be there and has no images.
func NewStore(dir string) *Store {
	return &Store{dir: dir, files: map[[sha256.Size]byte]string{}}
}

// Add writes an image, which ReadImage reads from the file NAME.json. NAME is the last part of the image's first name.
func (s *Store) Add(image Image) error {
	name, _, _ := strings.Cut(path.Base(image.Names[0]), ":")
	stored := image
	stored.Files = map[string]string{}
	for _, place := range slices.Sorted(maps.Keys(image.Files)) {
		var err error
		if stored.Files[place], err = s.add(image.Files[place], path.Join(name, place)); err != nil {
			return fmt.Errorf("store the image %s: %w", name, err)
		}
	}
	text, err := json.MarshalIndent(stored, "", "  ")
	if err == nil {
		err = errors.Join(os.MkdirAll(s.dir, 0o755), os.WriteFile(filepath.Join(s.dir, name+".json"), text, 0o644))
	}
	if err != nil {
		return fmt.Errorf("store the image %s: %w", name, err)
	}
	return nil
}

// add writes a file into the folder, unless it has one with this content, and returns its path there.
func (s *Store) add(file, to string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	if stored, ok := s.files[sum]; ok {
		return stored, nil
	}
	s.files[sum] = to
	to = filepath.Join(s.dir, to)
	return s.files[sum], errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
}

// ReadImage returns the image of a file of a store.
func ReadImage(file string) (Image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Image{}, fmt.Errorf("read an image: %w", err)
	}
	var image Image
	if err := json.Unmarshal(text, &image); err != nil {
		return Image{}, fmt.Errorf("read the image %s: %w", file, err)
	}
	for place, stored := range image.Files {
		image.Files[place] = filepath.Join(filepath.Dir(file), stored)
	}
	return image, nil
}
