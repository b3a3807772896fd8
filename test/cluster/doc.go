// Package cluster runs a real Kubernetes control plane without containers, for tests, benchmarks and the demo: etcd
// and kube-apiserver, started by controller-runtime's envtest, and kube-controller-manager, kube-scheduler and kwok,
// which renews the leases of simulated nodes. All are plain processes on loopback. The binaries are built from pinned
// Go modules (test/controlplane), which only needs a Go toolchain and the Go module proxy; AssetsVariable can name
// other binaries of etcd and kube-apiserver.
//
// Start runs all of it. StartEnvtest only runs etcd and kube-apiserver, for controller suites.
//
// It does not cover kubelets, containers, probes and kernel modules. Package simulator simulates the kubelet of the
// simulated nodes.
package cluster
