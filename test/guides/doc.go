// Package guides tests what guides on GPUs in Kubernetes let their readers expect: sharing of GPUs, MIG, taints,
// quotas and lost GPUs, on a real control plane and scheduler with simulated nodes. Each test is named after its claim.
// On a cluster of its own, it also applies the samples for other projects, and asks the readers of GitOps tools what
// they think of the operator's objects.
package guides
