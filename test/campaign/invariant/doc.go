// Package invariant states what must hold in every run, whatever goes wrong: a table of named checks on the history of
// a run, at every stored revision where they are about states. The names S1 to S17 and L1 to L9 are those of
// docs/campaign.md.
package invariant
