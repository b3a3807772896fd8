package readiness

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// State of an object.
type State int

const (
	// Ready: the object works.
	Ready State = iota
	// Progressing: the object is not ready yet and has not failed.
	Progressing
	// Failed: waiting does not help, or a container has failed and has not recovered since.
	Failed
)

// Verdict is a state with its cause.
type Verdict struct {
	State State
	// Reason is a CamelCase word; empty when ready.
	Reason string
	// Message is stable while the cause is the same.
	Message string
	// Detail follows the message and may change with each restart of a container.
	Detail string
	// DetailLasts: the detail is as stable as the message, so that another one replaces it, also an empty one.
	DetailLasts bool
	// Pod is the name of the pod that has failed; empty for none.
	Pod string
	// Overdue: the state is Failed only because the deadline has passed.
	Overdue bool
	// Outdated: the object was created from an older template, or it is a node with another driver than it should have,
	// and nothing replaces it without help.
	Outdated bool
	// BeingReplaced: the object was created from an older template, and its controller replaces it.
	BeingReplaced bool
	// Until is when the verdict changes by time alone and must be computed again; zero if never.
	Until time.Time
}

func progressing(reason, message string) Verdict {
	return Verdict{State: Progressing, Reason: reason, Message: message}
}

func failed(reason, message string) Verdict {
	return Verdict{State: Failed, Reason: reason, Message: message}
}

// Text returns the message with its detail.
func (v Verdict) Text() string { return text.Join(v.Message, v.Detail) }
