package resultfile

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// maxLine bounds the JSON of a result, in bytes.
const maxLine = 1 << 20

// File has the results of the cases of a test, each with its key. It is safe for concurrent use.
type File[K comparable, R any] struct {
	path string
	key  func(R) K
	lock sync.Mutex
	all  map[K]R
}

// Open reads the results in a folder, which is created, for these programs and the test that runs: their digests are
// the name of the file, so that other programs have none. key returns that of a result.
func Open[K comparable, R any](dir string, key func(R) K, programs ...string) (*File[K, R], error) {
	test, err := os.Executable()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, path := range append(programs, test) {
		if err := addFile(sum, path); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Like the other folders of the cache.
		return nil, fmt.Errorf("create the folder of results: %w", err)
	}
	name := hex.EncodeToString(sum.Sum(nil))[:16] + ".jsonl"
	f := &File[K, R]{path: filepath.Join(dir, name), key: key}
	if f.all, err = f.read(f.path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return f, nil
}

func addFile(sum io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(sum, file)
	return err
}

// Read adds the results of another file, of cases that have none. It fails if there is no such file.
func (f *File[K, R]) Read(path string) error {
	others, err := f.read(path)
	if err != nil {
		return err
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	maps.Copy(others, f.all)
	f.all = others
	return nil
}

// read returns the last result of each case in a file, none if there is no such file.
func (f *File[K, R]) read(path string) (map[K]R, error) {
	all := map[K]R{}
	file, err := os.Open(path)
	if err != nil {
		return all, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var one R
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return all, fmt.Errorf("read %s: %w: remove the file to start over", path, err)
		}
		all[f.key(one)] = one
	}
	return all, lines.Err()
}

// Of returns the last result of a case; zero if it has none.
func (f *File[K, R]) Of(key K) R {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.all[key]
}

// All returns the last result of each case.
func (f *File[K, R]) All() map[K]R {
	f.lock.Lock()
	defer f.lock.Unlock()
	return maps.Clone(f.all)
}

// Add appends a result immediately, so that the test can be interrupted at any time.
func (f *File[K, R]) Add(one R) error {
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.all[f.key(one)] = one
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("store a result: %w", err)
	}
	defer file.Close()
	_, err = file.Write(append(text, '\n'))
	return err
}
