package campaign

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// verdict is the result of a point.
type verdict string

const (
	passed verdict = "passed"
	failed verdict = "failed"
	// missed: the fault had no target in this run.
	missed verdict = "missed"
)

// kept is the stored result of a point.
type kept struct {
	Point   string  `json:"point"`
	Verdict verdict `json:"verdict"`
	// Recovery is in seconds.
	Recovery float64 `json:"recovery,omitempty"`
	Detail   string  `json:"detail,omitempty"`
	// Commit is that of the source, empty if unknown.
	Commit string `json:"commit,omitempty"`
}

// results are those of one operator and one campaign, in a file to which each run appends.
type results struct {
	path string
	lock sync.Mutex
	all  map[string]kept
}

// bugPrefix is the prefix of the names of seeded bugs among the points.
const bugPrefix = "bug/"

// openResults reads the results for an operator, which is identified by the digests of its binary and of the
// campaign.
func openResults(binary string) (*results, error) {
	sum := sha256.New()
	campaign, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, path := range []string{binary, campaign} {
		if err := hashFile(sum, path); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(repo, ".cache", "campaign")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // like the other folders of the cache
		return nil, fmt.Errorf("create the folder of results: %w", err)
	}
	r := &results{path: filepath.Join(dir, hex.EncodeToString(sum.Sum(nil))[:16]+".jsonl"), all: map[string]kept{}}
	if *flagFrom != "" {
		if err := r.read(*flagFrom); err != nil {
			return nil, err
		}
	}
	return r, r.read(r.path)
}

func hashFile(sum io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(sum, file)
	return err
}

func (r *results) read(path string) error {
	file, err := os.Open(path)
	if os.IsNotExist(err) && path == r.path {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var k kept
		if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
			return fmt.Errorf("read %s: %w: remove the file to start over", path, err)
		}
		r.all[k.Point] = k
	}
	return lines.Err()
}

// hasPassed reports whether the point does not need to run again.
func (r *results) hasPassed(point string) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.all[point].Verdict == passed || r.all[point].Verdict == missed
}

// add stores a result immediately, so that a run can be interrupted at any time.
func (r *results) add(k kept) error {
	k.Commit = commit()
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.all[k.Point] = k
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("store the result of %s: %w", k.Point, err)
	}
	defer file.Close()
	_, err = file.Write(append(text, '\n'))
	return err
}
