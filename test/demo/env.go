package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	configDir      = "config/default"
	samplePolicy   = "config/samples/clusterpolicy.yaml"
	serviceAccount = "gpu-operator"

	// operatorImage is the image of the operator's helper containers. A real node has it.
	operatorImage = "ghcr.io/clusterpolicy/gpu-operator:demo"

	// model of the GPUs, which supports MIG.
	model = simulator.ModelH100

	// startLimit is the timeout from the first process to the operator's readiness.
	startLimit = 3 * time.Minute
)

// env is a cluster with GPU nodes and the operator, without a policy.
type env struct {
	cluster   *cluster.Cluster
	simulator *simulator.Simulator
	// real is the real node, nil if there is none.
	real     machine
	operator *cluster.Operator
	// metrics is the address of the operator's metrics endpoint.
	metrics string
	// before is the end of the audit log before the operator started.
	before cluster.Mark
}

// machine is a real node.
type machine interface {
	// PowerOff ends it and all its processes.
	PowerOff() error
}

// programs are the programs that the demo runs besides the control plane.
type programs struct {
	operator string
	node     host.Programs
}

// buildAll compiles missing programs, which takes minutes the first time and seconds later.
func buildAll(ctx context.Context, progress io.Writer) (programs, error) {
	if _, err := os.Stat(configDir); err != nil {
		return programs{}, fmt.Errorf("run the demo in the root of the repository: %w", err)
	}
	if _, err := cluster.EnsureBinaries(ctx, "", progress); err != nil {
		return programs{}, err
	}
	operator, err := cluster.BuildOperator(ctx, progress)
	if err != nil {
		return programs{}, err
	}
	gpuNode, standIn, err := cluster.BuildNodePrograms(ctx, progress)
	return programs{operator: operator, node: host.Programs{GPUNode: gpuNode, StandIn: standIn}}, err
}

// startEnv starts everything; on an error the caller must still stop what has started. The simulator runs until ctx
// ends.
func startEnv(ctx context.Context, built programs, opts options, progress io.Writer) (*env, error) {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	e := &env{}
	var err error
	address := reachable(progress)
	fmt.Fprintln(progress, "Starting the control plane ...")
	if e.cluster, err = cluster.Start(limited, clusterOptions(opts)); err != nil {
		return e, err
	}
	fmt.Fprintf(progress, "Kubernetes %s is up; KUBECONFIG=%s\n", e.cluster.Version, e.cluster.Kubeconfig())
	e.simulator, err = simulator.New(simulator.Options{
		Config: e.cluster.SimulatorConfig, Programs: built.node, Modules: true, Address: address,
	})
	if err != nil {
		return e, err
	}
	for _, f := range opts.faults {
		e.simulator.Break(f.operand, f.node, f.mode)
	}
	if err := e.simulator.Start(ctx); err != nil {
		return e, err
	}
	if err := e.addNodes(limited, opts.nodes, progress); err != nil {
		return e, err
	}
	if opts.real {
		// It runs until ctx ends.
		if e.real, err = addReal(ctx, e.cluster, progress); err != nil {
			return e, err
		}
	}
	fmt.Fprintf(progress, "%d GPU nodes exist; installing the operator ...\n", opts.total())
	if err := cluster.Install(limited, e.cluster.Config, configDir); err != nil {
		return e, err
	}
	return e, e.startOperator(limited, built.operator)
}

// reachable returns the address at which the simulated nodes serve their logs and metrics, and makes the API server ask
// no proxy for it.
func reachable(progress io.Writer) string {
	address := simulator.ReachableAddress()
	if address == "" {
		fmt.Fprintln(progress, "Without a network, kubectl logs and kubectl gpu top have nothing to show.")
		return ""
	}
	if err := simulator.CanServe(address); err != nil {
		fmt.Fprintf(progress, "kubectl logs and kubectl gpu top have nothing to show: %v\n", err)
		return ""
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Setenv(name, strings.TrimPrefix(os.Getenv(name)+","+address, ",")); err != nil {
			fmt.Fprintf(progress, "The API server may not reach the simulated nodes: %v\n", err)
		}
	}
	return address
}

// addNodes creates the nodes. The last one runs the real gpu-node, if this computer allows it.
func (e *env) addNodes(ctx context.Context, count int, progress io.Writer) error {
	if _, err := e.simulator.AddNodesOf(ctx, count-1, simulator.NodeSpec{Model: model}); err != nil {
		return err
	}
	// Node Feature Discovery has not labelled the last one: gpu-node discovers its GPUs.
	last := simulator.NodeSpec{Processes: true, Undiscovered: true, Model: model}
	if err := e.simulator.CanRunProcesses(); err != nil {
		fmt.Fprintf(progress, "gpu-node is simulated on every node: %v\n", err)
		last = simulator.NodeSpec{Model: model}
	}
	name, err := e.simulator.AddNode(ctx, last)
	if err == nil && last.Processes {
		fmt.Fprintf(progress, "%s runs the real gpu-node in its containers, below %s; the other nodes simulate it\n", name,
			e.simulator.Dir())
	}
	return err
}

// startOperator runs the operator as in a cluster: with only the permissions of its ServiceAccount, leader election
// and all endpoints.
func (e *env) startOperator(ctx context.Context, binary string) error {
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(ctx, cluster.OperatorNamespace, serviceAccount, "")
	if err != nil {
		return err
	}
	if e.before, err = e.cluster.Mark(); err != nil {
		return err
	}
	if e.metrics, err = cluster.FreeAddress(); err != nil {
		return err
	}
	e.operator, err = cluster.StartOperator(ctx, cluster.OperatorOptions{
		Binary:     binary,
		Kubeconfig: kubeconfig,
		Args:       []string{"--leader-elect=true", "--metrics-bind-address=" + e.metrics, "--metrics-secure=false"},
		Env:        []string{"OPERATOR_IMAGE=" + operatorImage},
		LogFile:    filepath.Join(e.cluster.LogDir, "gpu-operator.log"),
	})
	return err
}

// ended returns the error of an operator that has exited, with its log, which is removed with the cluster.
func (e *env) ended() error {
	const tail = 4000
	log, err := os.ReadFile(e.operator.LogFile)
	if err != nil {
		return fmt.Errorf("read the log of the operator, which has exited: %w", err)
	}
	how := "exit code 0"
	if err := e.operator.Wait(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("the operator has exited (%s):\n%s", how, log[max(0, len(log)-tail):])
}

// removed reports whether the operator's namespace has been deleted, without which it cannot run.
func (e *env) removed(ctx context.Context) bool {
	c, err := client.New(e.cluster.Config, client.Options{})
	if err != nil {
		return false
	}
	err = c.Get(ctx, client.ObjectKey{Name: cluster.OperatorNamespace}, &corev1.Namespace{})
	return apierrors.IsNotFound(err)
}

// stop ends all processes and removes their files.
func (e *env) stop() error {
	var errs []error
	if e.operator != nil {
		errs = append(errs, e.operator.Stop())
	}
	if e.simulator != nil {
		e.simulator.Stop()
	}
	if e.real != nil {
		errs = append(errs, e.real.PowerOff())
	}
	if e.cluster != nil {
		errs = append(errs, e.cluster.Stop())
	}
	return errors.Join(errs...)
}

// loadPolicy reads the default sample.
func loadPolicy() (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(samplePolicy)
	if err != nil {
		return nil, fmt.Errorf("read the sample policy: %w", err)
	}
	policy := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &policy.Object); err != nil {
		return nil, fmt.Errorf("parse %s: %w", samplePolicy, err)
	}
	return policy, nil
}

// apply does what "kubectl apply --server-side" does.
func (e *env) apply(ctx context.Context, policy *unstructured.Unstructured) error {
	c, err := client.New(e.cluster.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy), client.FieldOwner("demo")); err != nil {
		return fmt.Errorf("apply %s: %w", samplePolicy, err)
	}
	return nil
}
