// Package manifests judges all manifests of the project by the rules that public linters have: those of
// kube-score, which runs as a program, and those of kube-linter's list that kube-score lacks. A finding
// needs a written reason in reasons.yaml, and a reason needs a finding, so that none outlives what it excuses.
package manifests
