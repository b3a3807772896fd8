// Package campaign injects faults into the operator on a real control plane, and checks the invariants of package
// invariant at every stored revision. A row of the campaign is a type of fault; its points are where and when it is
// injected. See docs/campaign.md.
package campaign
