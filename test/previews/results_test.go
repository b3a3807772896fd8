package previews

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

// result is that of a case.
type result struct {
	Seed   uint64 `json:"seed"`
	Passed bool   `json:"passed"`
	// Refused: the API server refuses the policy or an NVIDIADriver, as was printed.
	Refused int `json:"refused,omitempty"`
	// Excusable: it was printed that an object may differ. Named are the differences that were named so.
	Excusable bool `json:"excusable,omitempty"`
	Named     int  `json:"named,omitempty"`
	// Objects that were compared, Changes that were planned, and how many of them come as nodes are moved.
	Objects int `json:"objects"`
	Changes int `json:"changes"`
	Later   int `json:"later,omitempty"`
	// Drivers are the pods of drivers that ran before the second edit.
	Drivers int `json:"drivers,omitempty"`
}

// results are those of the same programs, in a file to which each case appends, so that a run can be interrupted.
type results struct {
	path string
	lock sync.Mutex
	all  map[uint64]result
}

// of returns the result of a case; zero if it has not run.
func (r *results) of(seed uint64) result {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.all[seed]
}

// openResults reads the results for programs, which their digests identify, with that of this test.
func openResults(dir string, programs ...string) (*results, error) {
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
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // like the other folders of the cache
		return nil, err
	}
	r := &results{path: filepath.Join(dir, hex.EncodeToString(sum.Sum(nil))[:16]+".jsonl"), all: map[uint64]result{}}
	return r, r.read()
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

func (r *results) read() error {
	file, err := os.Open(r.path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var one result
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("read %s: %w: remove the file to start over", r.path, err)
		}
		r.all[one.Seed] = one
	}
	return lines.Err()
}

// add stores the result of a case immediately.
func (r *results) add(one result) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.all[one.Seed] = one
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(text, '\n'))
	return err
}
