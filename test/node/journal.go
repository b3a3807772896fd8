//go:build linux

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// journal is where the stand-in, as runc, records each start of a container.
const journal = "/var/lib/stand-in-journal"

// Start is the start of a container.
type Start struct {
	// Namespace and Pod that it belongs to; Container is empty for the pod's sandbox.
	Namespace, Pod, Container string
	// At is just before its program was started.
	At time.Time
}

// Starts returns the starts of all containers since then, in their order, including containers that are gone.
func (m *Machine) Starts(since time.Time) ([]Start, error) {
	var found []Start
	err := m.readLines(journal, func(line []byte) error {
		var noted struct {
			Namespace, Pod, Container string
			At                        int64
		}
		err := json.Unmarshal(line, &noted)
		if at := time.Unix(0, noted.At); !at.Before(since) {
			found = append(found, Start{noted.Namespace, noted.Pod, noted.Container, at})
		}
		return err
	})
	return found, err
}

// injections is where the stand-in, as the runtime of the handler nvidia, records what it has injected.
const injections = "/var/lib/stand-in-injections"

// Injection is what a container got when it was created.
type Injection struct {
	Pod, Container string
	// Driver is the version whose files it got, Loaded that of the driver in the kernel then; empty for none.
	Driver, Loaded string
	At             time.Time
}

// Injections returns the injections since then, in their order.
func (m *Machine) Injections(since time.Time) ([]Injection, error) {
	var found []Injection
	err := m.readLines(injections, func(line []byte) error {
		var noted struct {
			Pod, Container, Driver, Loaded string
			At                             int64
		}
		err := json.Unmarshal(line, &noted)
		if at := time.Unix(0, noted.At); !at.Before(since) {
			found = append(found, Injection{noted.Pod, noted.Container, noted.Driver, noted.Loaded, at})
		}
		return err
	})
	return found, err
}

// readLines reads a file of the machine's disk, which may be missing.
func (m *Machine) readLines(path string, read func(line []byte) error) error {
	content, err := os.ReadFile(m.Path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the journal of machine %s: %w", m.options.Name, err)
	}
	for line := range bytes.Lines(content) {
		if err := read(line); err != nil {
			return fmt.Errorf("read the journal of machine %s: %w", m.options.Name, err)
		}
	}
	return nil
}
