package marker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Container is what the driver container of the node tells in labels.DriverContainerReady, which
// its start-up probe writes: the operator's, or that of NVIDIA's operator.
type Container struct {
	// Ready tells that the file exists.
	Ready bool
	// Instance names the instance of the driver container; empty where none is ready. NVIDIA's
	// start-up probe names none. Its file is written anew by each container, so then the time of
	// the file is the name.
	Instance string

	written time.Time
	values  map[string]string
}

// Enabled tells whether the driver container loads the module that key stands for, such as
// labels.GDSEnabledKey; not where the line is missing. It fails on a value that is no boolean.
func (c Container) Enabled(key string) (bool, error) {
	value := c.values[key]
	if value == "" {
		return false, nil
	}
	enabled, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s in %s is %q, neither true nor false; correct the environment of the driver container",
			key, labels.DriverContainerReady, value)
	}
	return enabled, nil
}

// Container reads labels.DriverContainerReady, which may be missing.
func (d Dir) Container() (Container, error) {
	content, written, err := d.readFile(labels.DriverContainerReady)
	if errors.Is(err, fs.ErrNotExist) {
		return Container{}, nil
	}
	if err != nil {
		return Container{}, fmt.Errorf("%s cannot be read, so no marker can be trusted: %w", labels.DriverContainerReady, err)
	}
	values := ParseContainer(content)
	instance := values[labels.DriverInstanceKey]
	if instance == "" {
		instance = fmt.Sprintf("since-%d.%09d", written.Unix(), written.Nanosecond())
	}
	return Container{Ready: true, Instance: instance, written: written, values: values}, nil
}

// ParseContainer reads the content of labels.DriverContainerReady: lines "KEY: value", of which the
// last one with a key counts. A line that is none is passed over: who adds one must not stop the
// node. Quotes around a value are taken off, and nothing is evaluated.
func ParseContainer(content []byte) map[string]string {
	values := map[string]string{}
	for line := range bytes.Lines(content) {
		key, value, found := strings.Cut(string(line), ":")
		if key = strings.TrimSpace(key); found && keyPattern.MatchString(key) {
			values[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return values
}

// readFile returns the content of a file in the directory, and when it was written. It reads no
// more than tells Parse that there is too much.
func (d Dir) readFile(name string) ([]byte, time.Time, error) {
	file, err := os.Open(filepath.Join(d.Path, name))
	if err != nil {
		return nil, time.Time{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	return content, info.ModTime(), err
}
