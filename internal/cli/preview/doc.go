// Package preview computes what an edit of the ClusterPolicy would change in a cluster: which objects, which pods are
// replaced, and how the drivers of the nodes would be upgraded. It is pure: the objects of a cluster in, a Preview out.
// It decides nothing itself, but asks the packages that the operator uses: plan, render, rollout, apply and upgrade.
package preview
