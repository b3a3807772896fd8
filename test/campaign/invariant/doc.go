// Package invariant has the invariants of every run, whatever the faults: a table of named checks on the history of a
// run, at every stored revision if they concern states. The names S1 to S17 and L1 to L9 are those of
// docs/campaign.md.
package invariant
