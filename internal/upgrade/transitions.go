package upgrade

// Transition is one way from a state to another one.
type Transition struct {
	From, To State
	// Cause is one line for a drawing.
	Cause string
}

// Transitions are all transitions between different states that a plan has, in the order of an upgrade; StateDone also
// stands for a node without a state. The page docs/driver-upgrades.md is drawn from them, and the tests compare them
// with what the planner does.
func Transitions() []Transition {
	return []Transition{
		{StateDone, StateRequired, "driver outdated or upgrade requested"},
		{StateRequired, StateWaitForJobs, "slot and images there, jobs run: cordon"},
		{StateRequired, StatePodDeletion, "slot and images there: cordon"},
		{StateRequired, StatePodRestart, "the same, no pod uses the GPUs: cordon"},
		{StateRequired, StateDone, "driver pod replaced outside an upgrade"},
		{StateWaitForJobs, StatePodDeletion, "jobs ended or timeout"},
		{StateWaitForJobs, StatePodRestart, "jobs ended, no pod uses the GPUs"},
		{StatePodDeletion, StatePodRestart, "no pod uses the GPUs"},
		{StatePodDeletion, StateDrain, "timeout, drain enabled"},
		{StateDrain, StatePodRestart, "no pod uses the GPUs"},
		{StatePodRestart, StateValidation, "new driver ready"},
		{StatePodRestart, StateDone, "new driver validated already: uncordon"},
		{StateValidation, StateDone, "new driver validated: uncordon"},
		{StateValidation, StatePodRestart, "another target"},
		{StateWaitForJobs, StateDone, "target taken back or driver not installed: uncordon"},
		{StatePodDeletion, StateDone, "target taken back or driver not installed: uncordon"},
		{StateDrain, StateDone, "target taken back or driver not installed: uncordon"},
		{StateWaitForJobs, StateRequired, "node excluded: uncordon"},
		{StatePodDeletion, StateRequired, "node excluded: uncordon"},
		{StateDrain, StateRequired, "node excluded: uncordon"},
		{StatePodRestart, StateRequired, "node excluded before the restart: uncordon"},
		{StateWaitForJobs, StateFailed, "uncordoned by others"},
		{StatePodDeletion, StateFailed, "timeout: uncordon; or uncordoned by others"},
		{StateDrain, StateFailed, "timeout: uncordon; or uncordoned by others"},
		{StatePodRestart, StateFailed, "timeout, or uncordoned by others before the restart"},
		{StateValidation, StateFailed, "timeout"},
		{StateFailed, StateRequired, "request, another target, or retry"},
		{StateFailed, StateDone, "driver validated after all: uncordon"},
		{StateDrain, StatePodDeletion, "left by NVIDIA's operator"},
		{StateCordon, StatePodDeletion, "left by NVIDIA's operator"},
		{StateUncordon, StateValidation, "left by NVIDIA's operator"},
		{StateUncordon, StatePodRestart, "left by NVIDIA's operator, driver outdated"},
	}
}
