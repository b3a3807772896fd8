package explain

// Finding is one thing that is wrong.
type Finding struct {
	// Reason in CamelCase: one of package api/v1, or of this package for a pod.
	Reason string `json:"reason"`
	// Message is what was found, about these very objects.
	Message string `json:"message"`
	// Cause is what usually leads to it; empty if the message states it.
	Cause string `json:"cause,omitempty"`
	// Next is the next step.
	Next string `json:"next"`
	// Commands show the cause, or take the next step, as they are; none where it depends on what is found.
	Commands []string `json:"commands,omitempty"`
	// Log that shows the cause; absent if there is none.
	Log *Log `json:"log,omitempty"`
	// Nodes that it applies to, of a pod that is not scheduled.
	Nodes []string `json:"nodes,omitempty"`
}
