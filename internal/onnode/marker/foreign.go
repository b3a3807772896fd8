package marker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// driverKeys are the assignments of a complete driver's marker.
var driverKeys = []string{
	labels.IsHostDriverKey, labels.DriverRootKey, labels.DriverRootMountKey, labels.DevRootKey, labels.DevRootMountKey,
}

// trust returns nil if the times of the files show that a marker without a boot, which another program
// wrote, is true.
func (d Dir) trust(m labels.Marker, f file) error {
	name := f.name
	booted, err := BootTime(cmp.Or(d.StatFile, labels.ProcStat))
	if err != nil {
		return fmt.Errorf("%s has no line %s=, and whether it is of this boot is not known: %w", name, labels.BootIDKey, err)
	}
	if f.written.Before(booted) {
		return fmt.Errorf("%s is stale: it was written before the node was booted", name)
	}
	container, err := d.Container()
	if err != nil {
		return err
	}
	if container.Ready && f.written.Before(container.written) {
		return fmt.Errorf("%s is stale: it was written before the present driver container was ready", name)
	}
	if m == labels.MarkerDriver {
		return f.trustDriver(container.Ready)
	}
	if container.Ready {
		return nil
	}
	// An empty file does not tell whose driver it was made with: the driver's marker does.
	if _, err := d.Read(labels.MarkerDriver); err != nil {
		return fmt.Errorf("%s has no line %s= and so is only as good as the driver's marker: %w", name, labels.BootIDKey, err)
	}
	return nil
}

// trustDriver refuses a driver's marker that is half written, or whose driver container is gone.
func (f file) trustDriver(containerReady bool) error {
	name := f.name
	for _, key := range driverKeys {
		if _, ok := lookup(f.assignments, key); !ok {
			return fmt.Errorf("%s is half written: it has no line %s=", name, key)
		}
	}
	if !bytes.HasSuffix(f.content, []byte("\n")) {
		return fmt.Errorf("%s is half written: its last line does not end", name)
	}
	if onHost, _ := lookup(f.assignments, labels.IsHostDriverKey); onHost != labels.True && !containerReady {
		return fmt.Errorf("%s is stale: its driver container is not ready (%s is missing)", name, labels.DriverContainerReady)
	}
	return nil
}

// BootTime returns when the node was booted, to the second, from file, labels.ProcStat on a node.
func BootTime(file string) (time.Time, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read when the node was booted; is /proc mounted? %w", err)
	}
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, "btime "); found {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("the line btime of %s is no number: %w", file, err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New(file + " has no line btime")
}
