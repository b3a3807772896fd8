// Package campaign attacks the operator with faults on a real control plane, and checks the invariants of package
// invariant at every stored revision. A row of the campaign is a kind of fault; its points are where and when it strikes.
// See docs/campaign.md.
package campaign
