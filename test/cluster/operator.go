package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/test/filelock"
)

// Flags of the operator that StartOperator sets by default.
const (
	flagHealth  = "--health-probe-bind-address"
	flagMetrics = "--metrics-bind-address"
	flagElect   = "--leader-elect"
)

// BuildOperator compiles cmd/gpu-operator into the cache and returns the path of the binary. With the race detector
// the operator is built with it too, which needs a C compiler.
func BuildOperator(ctx context.Context, progress io.Writer) (string, error) {
	return buildManager(ctx, "gpu-operator", "./cmd/gpu-operator", progress)
}

// BuildFastOperator is like BuildOperator for test/operator, the operator with a faster timing.
func BuildFastOperator(ctx context.Context, progress io.Writer) (string, error) {
	return buildManager(ctx, "quick-operator", "./test/operator", progress)
}

func buildManager(ctx context.Context, name, pkg string, progress io.Writer) (string, error) {
	if raceDetector {
		// Without -trimpath, as go test builds: most packages are already in the build cache.
		return buildOwn(ctx, name+"-race", "", pkg, progress, "CGO_ENABLED=1", "GOFLAGS=-buildvcs=false -race")
	}
	return buildOwn(ctx, name, "", pkg, progress)
}

// BuildPlugin compiles the plugin of kubectl into the cache and returns the path of the binary.
func BuildPlugin(ctx context.Context, progress io.Writer) (string, error) {
	return buildOwn(ctx, "kubectl-gpu", "", "./cmd/kubectl-gpu", progress)
}

// BuildNodePrograms compiles cmd/gpu-node and the stand-in for the programs of NVIDIA's images into the cache, for
// simulated nodes that run processes, and returns the paths of the binaries.
func BuildNodePrograms(ctx context.Context, progress io.Writer) (gpuNode, standIn string, err error) {
	if gpuNode, err = buildOwn(ctx, "gpu-node", "", "./cmd/gpu-node", progress); err != nil {
		return "", "", err
	}
	standIn, err = buildOwn(ctx, "stand-in", "", "./test/simulator/standin", progress)
	return gpuNode, standIn, err
}

// BuildNodeStandIn compiles the stand-in for NVIDIA's programs on a real node into the cache and returns the path of
// the binary.
func BuildNodeStandIn(ctx context.Context, progress io.Writer) (string, error) {
	return buildOwn(ctx, "node-stand-in", filepath.Join("test", "node", "standin"), ".", progress)
}

// buildOwn compiles a program of this project, from the module in a folder of the repository, into the cache and
// returns the path of the binary. env is as for goBuild.
func buildOwn(ctx context.Context, name, module, pkg string, progress io.Writer, env ...string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".cache", "bin")
	unlock, err := filelock.Lock(filepath.Join(bin, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(bin, name)
	fmt.Fprintf(progress, "building %s ...\n", name)
	if err := goBuild(ctx, filepath.Join(root, module), path, "-s -w", pkg, env...); err != nil {
		return "", err
	}
	return path, nil
}

// OperatorOptions configures an operator process.
type OperatorOptions struct {
	// Binary is the path that BuildOperator returned.
	Binary string
	// Kubeconfig has the operator's credentials, see ServiceAccountKubeconfig.
	Kubeconfig string
	// Namespace is the operator's; the default is OperatorNamespace.
	Namespace string
	// Args are further flags. By default leader election and metrics are disabled and the health address is a free port.
	Args []string
	// Env are further variables, as NAME=value. Only PATH and HOME are inherited.
	Env []string
	// LogFile receives the output, appended; the default is gpu-operator.log beside the kubeconfig.
	LogFile string
}

// Operator is a running operator process.
type Operator struct {
	// HealthAddress is the host:port that serves /readyz and /healthz.
	HealthAddress string
	// LogFile has the output.
	LogFile string

	process *process
}

// StartOperator starts the operator and waits until /readyz succeeds.
func StartOperator(ctx context.Context, opts OperatorOptions) (*Operator, error) {
	args, health, listens, err := operatorArgs(opts.Args)
	if err != nil {
		return nil, err
	}
	defer listens()
	logFile := opts.LogFile
	if logFile == "" {
		logFile = filepath.Join(filepath.Dir(opts.Kubeconfig), "gpu-operator.log")
	}
	namespace := opts.Namespace
	if namespace == "" {
		namespace = OperatorNamespace
	}
	cmd := exec.Command(opts.Binary, args...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"KUBECONFIG=" + opts.Kubeconfig,
		"OPERATOR_NAMESPACE=" + namespace,
		"OPERATOR_IMAGE=" + image.Own(),
	}, opts.Env...)
	p, err := startProcess(cmd, logFile)
	if err != nil {
		return nil, err
	}
	o := &Operator{HealthAddress: health, LogFile: logFile, process: p}
	if err := p.waitFor(ctx, o.ready); err != nil {
		p.kill()
		return nil, err
	}
	return o, nil
}

// operatorArgs adds the defaults and returns the resulting health address, and what is to be called once the operator
// listens on it.
func operatorArgs(given []string) (args []string, health string, listens func(), err error) {
	args, listens = given, func() {}
	if health = flagValue(given, flagHealth); health == "" {
		if health, listens, err = claimAddress(); err != nil {
			return nil, "", nil, err
		}
		args = append([]string{flagHealth + "=" + health}, args...)
	}
	if strings.HasPrefix(health, ":") {
		health = "127.0.0.1" + health
	}
	if flagValue(given, flagMetrics) == "" {
		args = append([]string{flagMetrics + "=0"}, args...)
	}
	if flagValue(given, flagElect) == "" {
		args = append([]string{flagElect + "=false"}, args...)
	}
	return args, health, listens, nil
}

// flagValue returns the value of a flag given as --name=value.
func flagValue(args []string, name string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
	}
	return ""
}

func (o *Operator) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.HealthAddress+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz returns %s", resp.Status)
	}
	return nil
}

// Stop ends the operator with SIGTERM, as a kubelet does, and waits until it has exited.
func (o *Operator) Stop() error { return o.process.stop() }

// Kill ends the operator with SIGKILL, as a node failure does, and waits until it has exited.
func (o *Operator) Kill() { o.process.kill() }

// Freeze suspends the operator, as on a suspended machine, until Thaw.
func (o *Operator) Freeze() { o.process.signal(syscall.SIGSTOP) }

// Thaw resumes a frozen operator.
func (o *Operator) Thaw() { o.process.signal(syscall.SIGCONT) }

// Wait blocks until the operator has exited; the error is nil for exit code 0.
func (o *Operator) Wait() error {
	<-o.process.done
	return o.process.err
}

// Done is closed once the operator has exited.
func (o *Operator) Done() <-chan struct{} { return o.process.done }
