// Package cluster runs a real Kubernetes control plane without containers, for tests, benchmarks
// and the demo: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as plain processes
// on loopback, and kwok, which keeps the leases of simulated nodes. The binaries are built from
// pinned Go modules (test/controlplane), so that nothing but a Go toolchain and the Go module proxy
// is needed.
//
// What it cannot show: kubelets, containers, probes, kernel modules. Package simulator plays the
// kubelet of the simulated nodes.
package cluster
