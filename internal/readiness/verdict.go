package readiness

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// State of an object.
type State int

const (
	// Ready: it does its work.
	Ready State = iota
	// Progressing: it is on its way.
	Progressing
	// Failed: it will not get better by waiting, or has failed at least once since it started.
	Failed
)

// Verdict is a state with its cause.
type Verdict struct {
	State State
	// Reason in one word; empty when ready.
	Reason string
	// Message in a sentence, stable while the cause is the same.
	Message string
	// Detail is the rest of the sentence, which may change with each attempt of a container.
	Detail string
	// Overdue: it has failed because it has been progressing for longer than its deadline.
	Overdue bool
	// Outdated tells that the object is older than what it was made from.
	Outdated bool
	// Until is when a verdict has to be looked at again, as it changes by time alone; zero if never.
	Until time.Time
}

func progressing(reason, message string) Verdict {
	return Verdict{State: Progressing, Reason: reason, Message: message}
}

func failed(reason, message string) Verdict {
	return Verdict{State: Failed, Reason: reason, Message: message}
}

// Text is the whole sentence.
func (v Verdict) Text() string { return text.Join(v.Message, v.Detail) }
