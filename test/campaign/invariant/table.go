package invariant

// Invariant is one rule.
type Invariant struct {
	ID, What string
	// NotYet is why nothing is checked.
	NotYet string
	// ByRunner: it is about how a run goes on and ends, which the runner sees.
	ByRunner bool
	check    func(*Run, *found)
}

const noUpgrades = "there is no upgrade engine yet: the operator takes no node out of service"

// Table are all invariants, in the order of their names.
func Table() []Invariant {
	return []Invariant{
		{ID: "S1", What: "no more nodes are out of service than the budget allows", NotYet: noUpgrades},
		{ID: "S2", What: "the operator cordons no node, and takes back no cordon that is not its own", check: cordons},
		{ID: "S3", What: "each step of an upgrade is one write", NotYet: noUpgrades},
		{ID: "S4", What: "the steps of an upgrade come in their order", NotYet: noUpgrades},
		{ID: "S5", What: "the operator evicts and deletes no pod", check: evictions},
		{ID: "S6", What: "no operand is ready on a node before what it requires has been ready there", check: dependencies},
		{ID: "S7", What: "only own objects are deleted and overwritten; a deletion names the UID", check: ownership},
		{ID: "S8", What: "what users have is the same at every revision", check: userData},
		{ID: "S9", What: "no container has more privileges than the published table says", check: privileges},
		{ID: "S10", What: "the status is true: Ready only while all nodes and the DaemonSets that GPUs need are, AuxiliaryReady only while the others are", check: truth},
		{ID: "S11", What: "an operand whose spec is invalid stays as it is", check: invalid},
		{ID: "S12", What: "the labels of one node change nothing on another", check: locality},
		{ID: "S13", What: "no pod goes that the run does not explain", check: podsStay},
		{ID: "S14", What: "no call is refused for want of rights, and no Secret is read elsewhere", check: rights},
		{ID: "S15", What: "operands are in the operator's namespace alone", check: namespaces},
		{ID: "S16", What: "the status is bounded", check: bounds},
		{ID: "S17", What: "a slot of the budget is taken by compare-and-swap", NotYet: noUpgrades},
		{ID: "L1", What: "in the end the state is what the spec says", ByRunner: true},
		{ID: "L2", What: "the state in the end is that of an undisturbed run", ByRunner: true},
		{ID: "L3", What: "after that nothing is written", ByRunner: true},
		{ID: "L4", What: "a node that can be upgraded is, whatever others do", NotYet: noUpgrades},
		{ID: "L5", What: "what was in the way is gone: the operator goes on by itself", ByRunner: true},
		{ID: "L6", What: "a failure shows in the status, with its cause", ByRunner: true},
		{ID: "L7", What: "without the policy nothing is left", ByRunner: true},
		{ID: "L8", What: "after a fault the state comes back in time; nothing panics or ends by itself", ByRunner: true},
		{ID: "L9", What: "no object is written again and again, nor without a change", check: cost},
	}
}
