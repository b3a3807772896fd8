// Package drain is the drain of one cordoned node, for an upgrade of its driver or for its MIG layout. It is pure: the
// step, the pods, the kubelet and the policy in; which pods are evicted, what is waited for and what ends that out.
//
// States, records and reports are those of its users, in package upgrade. Begin with Drain.Next.
package drain
