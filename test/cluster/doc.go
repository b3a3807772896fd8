// Package cluster runs a real Kubernetes control plane without containers, for tests, benchmarks
// and the demo: etcd and kube-apiserver, which envtest of controller-runtime starts, and beside them
// kube-controller-manager, kube-scheduler and kwok, which keeps the leases of simulated nodes. All
// are plain processes on loopback. The binaries are built from pinned Go modules (test/controlplane),
// so that nothing but a Go toolchain and the Go module proxy is needed; AssetsVariable can name other
// ones for etcd and kube-apiserver.
//
// Start runs all of it. StartEnvtest runs etcd and kube-apiserver alone, for suites of controllers.
//
// What it cannot show: kubelets, containers, probes, kernel modules. Package simulator plays the
// kubelet of the simulated nodes.
package cluster
