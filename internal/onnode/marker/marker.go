package marker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

// Known are the markers that can be waited for.
var Known = []labels.Marker{
	labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin,
	labels.MarkerMOFED, labels.MarkerNvidiaFS, labels.MarkerGDRCopy, labels.MarkerPeerMem,
}

// Named returns the marker with this name. It fails on a name that is not Known: waiting for it would never end.
func Named(name string) (labels.Marker, error) {
	if m := labels.Marker(name); slices.Contains(Known, m) {
		return m, nil
	}
	return "", fmt.Errorf("unknown marker %q; use one of %q", name, Known)
}

// Dir is the directory of the markers of one node, in one boot.
type Dir struct {
	// Path of the directory, normally labels.ValidationsDir.
	Path string
	// BootID names the current boot of the node. See BootID.
	BootID string
	// StatFile has the time of the boot, for markers without BOOT_ID; labels.ProcStat if empty.
	StatFile string
	// SysRoot is where sysfs is mounted. With it, the kernel module that the driver's marker names must be loaded too; if
	// empty, the modules are not looked at.
	SysRoot string
}

// BootID returns the ID of the current boot. file is labels.BootIDFile on a node.
func BootID(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the boot ID, without which no marker can be trusted; is /proc mounted? %w", err)
	}
	id := strings.TrimSpace(string(content))
	if id == "" {
		return "", fmt.Errorf("the boot ID in %s is empty, so no marker can be trusted", file)
	}
	return id, nil
}

// Read returns the assignments of the marker. The error is one clause that states why the marker cannot be
// trusted: missing, not readable, incomplete, or stale (see the package's documentation).
func (d Dir) Read(m labels.Marker) ([]Assignment, error) {
	assignments, _, err := d.ReadAt(m)
	return assignments, err
}

// ReadAt is Read that also returns when the marker was written.
func (d Dir) ReadAt(m labels.Marker) ([]Assignment, time.Time, error) {
	found, err := d.parse(m.File())
	if err != nil {
		return nil, time.Time{}, err
	}
	if _, ours := lookup(found.assignments, labels.BootIDKey); ours {
		err = d.current(found)
	} else {
		err = d.trust(m, found)
	}
	if err == nil {
		err = d.checkModule(m, found)
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	return found.assignments, found.written, nil
}

// file is a file in the directory that has the form of a marker.
type file struct {
	name        string
	content     []byte
	written     time.Time
	assignments []Assignment
}

func (d Dir) parse(name string) (file, error) {
	content, written, err := d.readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return file{}, fmt.Errorf("%s is missing", name)
	}
	if err != nil {
		return file{}, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	assignments, err := Parse(content)
	if err != nil {
		return file{}, fmt.Errorf("%s is malformed: %w", name, err)
	}
	return file{name: name, content: content, written: written, assignments: assignments}, nil
}

// current returns nil if the file names the current boot and the current driver instance.
func (d Dir) current(f file) error {
	if boot, _ := lookup(f.assignments, labels.BootIDKey); boot != d.BootID {
		return fmt.Errorf("%s is stale: it was written in another boot of the node", f.name)
	}
	written, _ := lookup(f.assignments, labels.DriverInstanceKey)
	now, err := d.DriverInstance()
	if err != nil {
		return err
	}
	if written != now {
		return fmt.Errorf("%s is stale: it was written for driver instance %q, now there is %q", f.name, written, now)
	}
	return nil
}

// Write writes the marker with these assignments, BOOT_ID and DRIVER_INSTANCE, atomically, with mode 0644.
// driverInstance is the one for which the marker is true.
func (d Dir) Write(m labels.Marker, assignments []Assignment, driverInstance string) error {
	return d.write(m.File(), assignments, driverInstance)
}

func (d Dir) write(name string, assignments []Assignment, driverInstance string) error {
	content, err := Format(slices.Concat(assignments, []Assignment{
		{Key: labels.BootIDKey, Value: d.BootID},
		{Key: labels.DriverInstanceKey, Value: driverInstance},
	}))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return atomicfile.Write(filepath.Join(d.Path, name), 0o644, bytes.NewReader(content))
}

// WriteProgress writes the state of a validation that has not succeeded yet, for the next run, in the form of a
// marker.
func (d Dir) WriteProgress(m labels.Marker, assignments []Assignment, driverInstance string) error {
	return d.write(m.ProgressFile(), assignments, driverInstance)
}

// ReadProgress returns what WriteProgress wrote, if it was in this boot and for the current driver instance.
func (d Dir) ReadProgress(m labels.Marker) ([]Assignment, error) {
	found, err := d.parse(m.ProgressFile())
	if err != nil {
		return nil, err
	}
	return found.assignments, d.current(found)
}

// RemoveProgress removes what WriteProgress wrote; it may be missing.
func (d Dir) RemoveProgress(m labels.Marker) error { return d.remove(m.ProgressFile()) }

// Remove removes the marker; it may be missing.
func (d Dir) Remove(m labels.Marker) error { return d.remove(m.File()) }

// WriteReason writes one sentence why the marker is missing.
func (d Dir) WriteReason(m labels.Marker, sentence string) error {
	return atomicfile.Write(filepath.Join(d.Path, m.ReasonFile()), 0o644, strings.NewReader(sentence+"\n"))
}

// RemoveReason removes what WriteReason wrote; it may be missing.
func (d Dir) RemoveReason(m labels.Marker) error { return d.remove(m.ReasonFile()) }

func (d Dir) remove(name string) error {
	if err := os.Remove(filepath.Join(d.Path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a file of an earlier run; check that its volume is mounted read-write: %w", err)
	}
	return nil
}

// DriverInstance returns the driver instance that is ready now, see Container. It is empty
// where none is: for a driver on the host, or one that another program's container has installed.
func (d Dir) DriverInstance() (string, error) {
	container, err := d.Container()
	return container.DriverInstance, err
}
