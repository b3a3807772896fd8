package removal

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxMessage is the limit of a message in bytes, and maxNamed how many pods one names.
const (
	maxMessage = 512
	maxNamed   = 3
)

// Action is what is done with a node next.
type Action string

// The actions.
const (
	// Done: nothing of the stack is left on the node.
	Done Action = "done"
	// Hold: pods use the GPUs, so the node stays as it is.
	Hold Action = "hold"
	// Wait for pods to end, for the clean-up, or for the kubelet.
	Wait Action = "wait"
	// TakeOff: change the labels so that operands lose the node.
	TakeOff Action = "take off"
	// Clean: change the labels so that the host is cleaned up.
	Clean Action = "clean"
	// Release: remove everything that the operator wrote on the node.
	Release Action = "release"
)

// Step is the next step of a node.
type Step struct {
	Action Action
	// Labels are the changes of TakeOff and Clean; nil removes a key.
	Labels map[string]*string
	// Failed: waiting does not help.
	Failed bool
	// Message is why the node is not done. For a Release it is empty, or why the host is not cleaned up.
	Message string
	// Until is when the step changes by time alone; zero if never.
	Until time.Time
}

// Reason returns the reason of package api/v1 for the step.
func (s *Step) Reason() string {
	switch {
	case s.Action == Hold:
		return v1.ReasonRemovalHeld
	case s.Failed:
		return v1.ReasonRemovalFailed
	}
	return v1.ReasonRemoving
}

// Next returns the next step.
func (n *Node) Next() Step {
	step := n.next()
	step.Message = text.Truncate(step.Message, maxMessage)
	if !n.Kubelet.Ready && step.Action != Done && step.Action != Release && !n.isLost() {
		step.Until = n.Kubelet.Since.Add(n.Patience)
	}
	return step
}

func (n *Node) next() Step {
	takeOff := n.takeOff()
	switch {
	case n.isDone():
		return Step{Action: Done}
	case len(n.Users) > 0 && n.NeedsUsers():
		return Step{Action: Hold, Message: "held by " + text.Named(n.Users, maxNamed)}
	case n.isLost() && n.Written:
		since := n.Kubelet.Since.UTC().Format(time.RFC3339)
		return Step{Action: Release, Message: "the kubelet has not been ready since " + since}
	case len(takeOff) > 0:
		return Step{Action: TakeOff, Labels: takeOff, Message: "operands are being removed"}
	case len(n.endingPods()) > 0:
		ending := text.Named(podNames(n.endingPods()), maxNamed)
		return Step{Action: Wait, Message: "waits until these pods have ended: " + ending}
	case n.Upgrading:
		return Step{Action: Wait, Message: "waits until its driver upgrade has ended"}
	}
	return n.cleanUp()
}

// isDone reports whether nothing is left on the node. The pods of a kubelet that does not work cannot end.
func (n *Node) isDone() bool {
	return !n.Written && !n.Upgrading && (len(n.endingPods()) == 0 || n.isLost())
}

// cleanUp returns the next step of a node without pods of the stack.
func (n *Node) cleanUp() Step {
	switch {
	case n.Excluded || !n.Marked || n.cleaning() && n.Cleaner.Done:
		return Step{Action: Release}
	case !n.cleaning():
		request := map[string]*string{labels.Cleanup: new(labels.True)}
		return Step{Action: Clean, Labels: request, Message: "the host is cleaned up"}
	case n.Cleaner.Failed && n.Force:
		return Step{Action: Release, Message: n.Cleaner.Message}
	}
	message := "waits for the clean-up of the host"
	if n.Cleaner.Failed {
		message = "the clean-up of the host fails"
	}
	return Step{Action: Wait, Failed: n.Cleaner.Failed, Message: text.Join(message, n.Cleaner.Message)}
}

func podNames(pods []Pod) []string {
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}
