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

// journal is where the stand-in, as runc, writes down each start of a container.
const journal = "/var/lib/stand-in-journal"

// Start is the start of a container.
type Start struct {
	// Namespace and Pod that it belongs to; Container is empty for the pod's sandbox.
	Namespace, Pod, Container string
	// At is just before its program started.
	At time.Time
}

// Starts are those of all containers since then, also of those that are gone, in their order.
func (m *Machine) Starts(since time.Time) ([]Start, error) {
	content, err := os.ReadFile(m.Path(journal))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of machine %s: %w", m.options.Name, err)
	}
	var found []Start
	for line := range bytes.Lines(content) {
		var noted struct {
			Namespace, Pod, Container string
			At                        int64
		}
		if err := json.Unmarshal(line, &noted); err != nil {
			return nil, fmt.Errorf("read the journal of machine %s: %w", m.options.Name, err)
		}
		if at := time.Unix(0, noted.At); !at.Before(since) {
			found = append(found, Start{noted.Namespace, noted.Pod, noted.Container, at})
		}
	}
	return found, nil
}
