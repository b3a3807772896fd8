package observe

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// NoteInterval is how long a Note counts as it was read.
const NoteInterval = 10 * time.Minute

// noteDeadline bounds a read, for which a pass waits.
const noteDeadline = 5 * time.Second

// Note is a sentence about the cluster that is read again at intervals, as nothing reports its change. Calls must not
// overlap.
type Note struct {
	read  func(context.Context) (string, error)
	clock clock.PassiveClock

	readAt time.Time
	text   string
}

// NewNote returns a Note that has not been read. read returns the sentence, empty for none.
func NewNote(clock clock.PassiveClock, read func(context.Context) (string, error)) *Note {
	return &Note{read: read, clock: clock}
}

// Text returns the sentence, empty for none and for a nil Note. If it cannot be read, the earlier one stays.
func (n *Note) Text(ctx context.Context) string {
	if n == nil {
		return ""
	}
	now := n.clock.Now()
	if !n.readAt.IsZero() && now.Sub(n.readAt) < NoteInterval {
		return n.text
	}
	ctx, cancel := context.WithTimeout(ctx, noteDeadline)
	defer cancel()
	n.readAt = now
	if text, err := n.read(ctx); err == nil {
		n.text = text
	}
	return n.text
}
