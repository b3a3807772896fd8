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

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// driverKeys are the assignments of a complete driver's marker.
var driverKeys = []string{
	labels.IsHostDriverKey, labels.DriverRootKey, labels.DriverRootMountKey, labels.DevRootKey, labels.DevRootMountKey,
}

// trust returns nil if its time shows that a marker without BOOT_ID, which another program wrote, is true.
func (d Dir) trust(m labels.Marker, f file) error {
	name := f.name
	booted, err := BootTime(cmp.Or(d.StatFile, labels.ProcStat))
	if err != nil {
		return fmt.Errorf("%s has no line %s=, and the time of the boot is unknown: %w", name, labels.BootIDKey, err)
	}
	if f.written.Before(booted) {
		return fmt.Errorf("%s is stale: it was written before the node booted", name)
	}
	container, err := d.Container()
	if err != nil {
		return err
	}
	if container.Ready && f.written.Before(container.written) {
		return fmt.Errorf("%s is stale: it was written before the current driver container was ready", name)
	}
	if m == labels.MarkerDriver {
		return f.trustDriver(container.Ready)
	}
	if container.Ready {
		return nil
	}
	// An empty file does not name its driver; the driver's marker does.
	if _, err := d.Read(labels.MarkerDriver); err != nil {
		return fmt.Errorf("%s has no line %s=, so it depends on the driver's marker: %w", name, labels.BootIDKey, err)
	}
	return nil
}

// trustDriver refuses a driver's marker that is incomplete, or whose driver container is gone.
func (f file) trustDriver(containerReady bool) error {
	name := f.name
	for _, key := range driverKeys {
		if _, ok := lookup(f.assignments, key); !ok {
			return fmt.Errorf("%s is incomplete: it has no line %s=", name, key)
		}
	}
	if !bytes.HasSuffix(f.content, []byte("\n")) {
		return fmt.Errorf("%s is incomplete: its last line does not end", name)
	}
	if onHost, _ := lookup(f.assignments, labels.IsHostDriverKey); onHost != labels.True && !containerReady {
		return fmt.Errorf("%s is stale: its driver container is not ready (%s is missing)", name, labels.DriverContainerReady)
	}
	return nil
}

// BootTime returns when the node was booted, to the second. file is labels.ProcStat on a node.
func BootTime(file string) (time.Time, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the boot; is /proc mounted? %w", err)
	}
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, "btime "); found {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("the line btime of %s is not a number: %w", file, err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New(file + " has no line btime")
}
