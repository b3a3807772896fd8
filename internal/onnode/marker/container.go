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

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Container is the content of labels.DriverContainerReady, which the start-up probe of the node's driver
// container writes: this operator's or NVIDIA's.
type Container struct {
	// Ready is true if the file exists.
	Ready bool
	// DriverInstance is empty where no driver container is ready. NVIDIA's start-up probe
	// writes no name. Each container writes the file again, so its modification time is the name then.
	DriverInstance string

	written time.Time
	values  map[string]string
}

// Enabled reports whether the driver container loads the module of this key, such as labels.GDSEnabledKey;
// false where the line is missing. It fails on a value that is no boolean.
func (c Container) Enabled(key string) (bool, error) {
	value := c.values[key]
	if value == "" {
		return false, nil
	}
	enabled, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s in %s is %q, which is not a boolean; correct the environment of the driver container",
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
	driverInstance := values[labels.DriverInstanceKey]
	if driverInstance == "" {
		driverInstance = fmt.Sprintf("%s%d.%09d", labels.UnnamedInstancePrefix, written.Unix(), written.Nanosecond())
	}
	return Container{Ready: true, DriverInstance: driverInstance, written: written, values: values}, nil
}

// ParseContainer reads the content of labels.DriverContainerReady: lines "KEY: value", of which the last one of
// a key counts. Other lines are ignored, so that later versions may add some. Quotes around a value are removed,
// and nothing is evaluated.
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

// readFile returns the content of a file in the directory, and when it was written. It reads at most one byte
// more than Parse accepts.
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
