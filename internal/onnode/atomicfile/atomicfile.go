package atomicfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path with the data from content, with exactly the permissions mode. A missing
// directory is created. On an error the previous file, if any, is unchanged and nothing is left behind.
func Write(path string, mode fs.FileMode, content io.Reader) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the directory of %s; check that its volume is mounted read-write: %w", path, err)
	}
	// In the same directory, since a rename is atomic only within a file system.
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s; check that its volume is mounted read-write: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = io.Copy(tmp, content)
	if err == nil {
		// CreateTemp makes the file private, and the umask must not apply.
		err = tmp.Chmod(mode)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s; check the free space and the permissions of its volume: %w", path, err)
	}
	return nil
}
