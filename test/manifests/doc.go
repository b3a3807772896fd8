// Package manifests checks all manifests of the project by the rules of public linters: those of kube-score, which it
// runs, and those of kube-linter that kube-score does not have. Each finding needs a reason in reasons.yaml, and each
// reason a finding, so that no reason becomes stale.
package manifests
