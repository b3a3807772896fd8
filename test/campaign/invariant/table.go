package invariant

// Invariant is one rule.
type Invariant struct {
	ID, What string
	// ByRunner: it concerns the course and the end of a run, which the runner checks.
	ByRunner bool
	check    func(*Run, *found)
}

// Table returns all invariants, sorted by name.
func Table() []Invariant {
	return []Invariant{
		{ID: "S1", What: "no more nodes are unavailable than the budget allows", check: budget},
		{ID: "S2", What: "the operator cordons no node but to upgrade it, and removes no cordon of others", check: cordons},
		{ID: "S3", What: "each step of an upgrade is one write", check: oneWrite},
		{ID: "S4", What: "the steps of an upgrade are in order", check: order},
		{ID: "S5", What: "the operator evicts no pod, and deletes operands only, to upgrade a driver", check: evictions},
		{ID: "S6", What: "no operand is ready on a node before what it requires has been ready there", check: dependencies},
		{ID: "S7", What: "only own objects are deleted and overwritten; a deletion names the UID", check: ownership},
		{ID: "S8", What: "data of users is the same at every revision", check: userData},
		{ID: "S9", What: "no container has more privileges than in the published table", check: privileges},
		{ID: "S10", What: "the status is correct: Ready only while all nodes and the DaemonSets that GPUs need are ready, " +
			"AuxiliaryReady only while the others are", check: truth},
		{ID: "S11", What: "an operand whose spec is invalid is not changed", check: invalid},
		{ID: "S12", What: "the labels of one node change nothing on another", check: locality},
		{ID: "S13", What: "no pod is deleted without a reason in the run", check: podsStay},
		{ID: "S14", What: "no request is denied, and no Secret of another namespace is read", check: rights},
		{ID: "S15", What: "operands are only in the operator's namespace", check: namespaces},
		{ID: "S16", What: "the status is bounded", check: bounds},
		{ID: "S17", What: "a slot of the budget is acquired by compare-and-swap", check: slotsHeld},
		{ID: "L1", What: "the final state matches the spec", ByRunner: true},
		{ID: "L2", What: "the final state is that of an undisturbed run", ByRunner: true},
		{ID: "L3", What: "after that nothing is written", ByRunner: true},
		{ID: "L4", What: "an upgradable node is upgraded, whatever happens to others", ByRunner: true},
		{ID: "L5", What: "once an obstacle is removed, the operator continues by itself", ByRunner: true},
		{ID: "L6", What: "a failure is reported in the status, with its cause", ByRunner: true},
		{ID: "L7", What: "without the policy nothing is left", ByRunner: true},
		{ID: "L8", What: "after a fault the state recovers in time; no process panics or exits by itself", ByRunner: true},
		{ID: "L9", What: "no object is written repeatedly, nor without a change", check: cost},
	}
}
