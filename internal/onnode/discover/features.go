package discover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// maxFeatures, in bytes, limits what is read of GPU Feature Discovery's file: it has a few thousand.
const maxFeatures = 64 << 10

// features is the file in which GPU Feature Discovery writes its labels.
type features struct {
	path string
	// keep is how long the labels outlive the file.
	keep time.Duration
	now  func() time.Time

	missingSince time.Time
}

// add adds the labels in the file to the findings. If the file is missing, it returns how long its labels are still
// kept; otherwise 0.
func (f *features) add(findings *Findings) time.Duration {
	if findings.NoGPU {
		// The file, if there is one, is about GPUs that are gone.
		f.missingSince = time.Time{}
		return 0
	}
	content, err := f.read()
	if err != nil {
		findings.KeepFeatures = true
		findings.Problems = append(findings.Problems, err.Error())
		return 0
	}
	found, ignored := parseFeatures(content)
	if len(ignored) > 0 {
		findings.Problems = append(findings.Problems, fmt.Sprintf(
			"%s has %d lines that are not labels of GPU Feature Discovery, so they are left out; one is %q",
			f.path, len(ignored), ignored[0]))
	}
	// An empty file counts as missing: it is about to be written, or its writer failed.
	if len(found) == 0 {
		return f.markMissing(findings)
	}
	f.missingSince = time.Time{}
	for key, value := range found {
		findings.Labels[key] = value
	}
	return 0
}

func (f *features) markMissing(findings *Findings) time.Duration {
	if f.missingSince.IsZero() {
		f.missingSince = f.now()
	}
	left := f.keep - f.now().Sub(f.missingSince)
	findings.KeepFeatures = left > 0
	return max(left, 0)
}

// read returns the content of the file, empty if it is missing.
func (f *features) read() (string, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the labels of GPU Feature Discovery cannot be read and are left unchanged: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFeatures+1))
	if err != nil {
		return "", fmt.Errorf("the labels of GPU Feature Discovery cannot be read and are left unchanged: %w", err)
	}
	if len(content) > maxFeatures {
		return "", fmt.Errorf("the labels of GPU Feature Discovery are left unchanged: %s has more than %d bytes", f.path,
			maxFeatures)
	}
	return string(content), nil
}

// parseFeatures reads lines KEY=value, empty lines and lines that start with "#". It returns the labels of GPU
// Feature Discovery, and the lines that are none. The last line of a key counts.
func parseFeatures(content string) (found map[string]string, ignored []string) {
	found = map[string]string{}
	for line := range strings.SplitSeq(content, "\n") {
		line = strings.Trim(line, " \t\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, assigned := strings.Cut(line, "=")
		_, name, _ := strings.Cut(key, "/")
		if !assigned || name == "" || !isValue(name) || !labels.IsFeature(key) || !isValue(value) {
			ignored = append(ignored, line)
			continue
		}
		found[key] = value
	}
	return found, ignored
}
