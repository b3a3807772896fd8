package nfd

import (
	"context"
	"io"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Options of nfd-worker: those of NVIDIA's chart, and none, with which it labels by class and vendor.
const (
	ChartOptions = `{"core": {"sleepInterval": "1s"}, "sources": {"pci": {` +
		`"deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"], "deviceLabelFields": ["vendor"]}}}`
	DefaultOptions = `{"core": {"sleepInterval": "1s"}}`
)

// masterOptions are those of NVIDIA's chart.
const masterOptions = `{"extraLabelNs": ["nvidia.com"]}`

// Programs starts the programs in a namespace, with the rights of their account.
type Programs struct {
	dir string
	// Kubeconfig has the rights of Account, and Namespace is the account's.
	Kubeconfig, Namespace string
	// LogDir has one log for each program and node.
	LogDir string
}

// Build builds the programs.
func (p *Programs) Build(ctx context.Context, progress io.Writer) (err error) {
	p.dir, err = cluster.EnsureNFDBinaries(ctx, progress)
	return err
}

// Pod is the pod that a program runs in, with the node that it is on. A worker without a pod has no owner.
type Pod struct{ Node, Name, UID string }

// Master starts nfd-master. It ends unless its node is there.
func (p *Programs) Master(pod Pod) (*cluster.Operator, error) {
	return p.start("nfd-master", "", pod, "-options="+masterOptions, "-config=")
}

// Collector starts nfd-gc.
func (p *Programs) Collector(pod Pod) (*cluster.Operator, error) {
	return p.start("nfd-gc", "", pod)
}

// Worker starts nfd-worker on the machine whose root file system is in a folder, with further arguments.
func (p *Programs) Worker(machine, options string, pod Pod, args ...string) (*cluster.Operator, error) {
	return p.start("nfd-worker", machine, pod, append(args, "-options="+options, "-config=")...)
}

func (p *Programs) start(name, dir string, pod Pod, args ...string) (*cluster.Operator, error) {
	return cluster.StartProgram(cluster.ProgramOptions{
		Binary: filepath.Join(p.dir, name), Kubeconfig: p.Kubeconfig, Dir: dir,
		// Any free port, as all programs run on one machine.
		Args: append(args, "-kubeconfig="+p.Kubeconfig, "-port=0"),
		Env: []string{
			"KUBERNETES_NAMESPACE=" + p.Namespace, "NODE_NAME=" + pod.Node, "POD_NAME=" + pod.Name, "POD_UID=" + pod.UID,
		},
		LogFile: filepath.Join(p.LogDir, name+"-"+pod.Node+".log"),
	})
}
