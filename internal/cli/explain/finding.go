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
	// Nodes that it applies to, of a pod that is not scheduled.
	Nodes []string `json:"nodes,omitempty"`
}
