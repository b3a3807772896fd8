// Package rollout decides what a rendering keeps of live DaemonSets, so that no pod is replaced needlessly: it owns the
// identities of DaemonSets, and the digest of the significant part of a pod template. It is pure.
//
// The name and the selector of a DaemonSet are decided when it is created. Labels, annotations and the helper image of
// the operator's release are insignificant.
package rollout
