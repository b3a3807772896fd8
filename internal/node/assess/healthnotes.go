package assess

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
)

// HealthNotes is an Event about what the health agent has noted since the assessment before.
type HealthNotes struct {
	// Reason is that of the most important note.
	Reason string
	// Message has the first notes, and how many more there are.
	Message string
	// Transition is the same as long as the notes are.
	Transition string
}

const (
	// notesKept is how long a note may be reported late: an agent that is installed reads what the kernel log has kept.
	notesKept = time.Hour
	// notesShown is how many notes a message has.
	notesShown = 3
)

// NewHealthNotes returns the Event about the notes that before does not have, for the node with this name; nil if there
// is none. They are one Event, so that many errors cost no more than one.
func (a *Assessment) NewHealthNotes(before *Health, node string, now time.Time) *HealthNotes {
	var known []gpuhealth.Note
	if before != nil {
		known = before.Report.Notes
	}
	var added []gpuhealth.Note
	for _, note := range a.Health.faults().Notes {
		if !slices.ContainsFunc(known, func(k gpuhealth.Note) bool { return isSameNote(k, note) }) &&
			now.Sub(note.Since) < notesKept {
			added = append(added, note)
		}
	}
	if len(added) == 0 {
		return nil
	}
	texts, transitions := make([]string, 0, len(added)), make([]string, 0, len(added))
	for _, note := range added {
		texts = append(texts, fmt.Sprintf("%s: %s", note.Reason, note.Text()))
		transitions = append(transitions, fmt.Sprintf("%s %s %d %d", note.PCI, note.Reason, note.Xid, note.Since.Unix()))
	}
	if more := len(texts) - notesShown; more > 0 {
		texts = append(texts[:notesShown], fmt.Sprintf("and %d more", more))
	}
	return &HealthNotes{
		Reason: added[0].Reason, Message: node + ": " + strings.Join(texts, "; "),
		Transition: strings.Join(transitions, "; "),
	}
}

func isSameNote(a, b gpuhealth.Note) bool {
	return a.PCI == b.PCI && a.Reason == b.Reason && a.Xid == b.Xid && a.Since.Equal(b.Since)
}
