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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

// Known are the markers that have a prover, so that can be waited for.
var Known = []labels.Marker{
	labels.MarkerDriver, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin,
	labels.MarkerMOFED, labels.MarkerNvidiaFS, labels.MarkerGDRCopy, labels.MarkerPeerMem,
}

// Named returns the marker with this name. It fails on one that nobody writes, for which a wait
// would never end.
func Named(name string) (labels.Marker, error) {
	if m := labels.Marker(name); slices.Contains(Known, m) {
		return m, nil
	}
	return "", fmt.Errorf("there is no marker %q; use one of %q", name, Known)
}

// Dir is the directory of the markers of one node, in one boot.
type Dir struct {
	// Path of the directory; labels.ValidationsDir unless told otherwise.
	Path string
	// BootID names the present boot of the node. See BootID.
	BootID string
	// StatFile tells when the node was booted, for markers that do not name their boot;
	// labels.ProcStat if empty.
	StatFile string
}

// BootID returns the content of file, labels.BootIDFile on a node: the present boot.
func BootID(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the boot id, without which no marker can be trusted; is /proc mounted? %w", err)
	}
	id := strings.TrimSpace(string(content))
	if id == "" {
		return "", fmt.Errorf("the boot id in %s is empty, so no marker can be trusted", file)
	}
	return id, nil
}

// Read returns the assignments of the marker. The error is one clause that says why the marker
// cannot be trusted: missing, not readable, half written, or stale (see the package's documentation).
func (d Dir) Read(m labels.Marker) ([]Assignment, error) {
	content, written, err := d.readFile(m.File())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing", m.File())
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", m.File(), err)
	}
	assignments, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s is malformed: %w", m.File(), err)
	}
	boot, ours := lookup(assignments, labels.BootIDKey)
	if !ours {
		if err := d.trust(foreign{marker: m, content: content, written: written, assignments: assignments}); err != nil {
			return nil, err
		}
		return assignments, nil
	}
	if boot != d.BootID {
		return nil, fmt.Errorf("%s is stale: it was written in another boot of the node", m.File())
	}
	proven, _ := lookup(assignments, labels.DriverInstanceKey)
	present, err := d.DriverInstance()
	if err != nil {
		return nil, err
	}
	if proven != present {
		return nil, fmt.Errorf("%s is stale: it was written for driver instance %q, now there is %q",
			m.File(), proven, present)
	}
	return assignments, nil
}

// Write writes the marker with these assignments, BOOT_ID and DRIVER_INSTANCE, atomically, with
// mode 0644. instance is the driver instance for which the marker is true.
func (d Dir) Write(m labels.Marker, assignments []Assignment, instance string) error {
	content, err := Format(slices.Concat(assignments, []Assignment{
		{Key: labels.BootIDKey, Value: d.BootID},
		{Key: labels.DriverInstanceKey, Value: instance},
	}))
	if err != nil {
		return fmt.Errorf("write the marker %s: %w", m.File(), err)
	}
	return atomicfile.Write(filepath.Join(d.Path, m.File()), 0o644, bytes.NewReader(content))
}

// Remove removes the marker; it may be missing.
func (d Dir) Remove(m labels.Marker) error { return d.remove(m.File()) }

// WriteReason writes, for people and for later readers, why the marker is missing: one sentence.
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

// DriverInstance returns the instance of the driver container that is ready now, see Container. It is
// empty where none is: a driver on the host, or one that somebody else's container has installed.
func (d Dir) DriverInstance() (string, error) {
	container, err := d.Container()
	return container.Instance, err
}
