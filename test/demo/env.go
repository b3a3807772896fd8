package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

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

	// operatorImage is what the operator has its helpers run from. A real node has it.
	operatorImage = "ghcr.io/clusterpolicy/gpu-operator:demo"

	// startLimit is for everything from the first process to the operator's readiness.
	startLimit = 3 * time.Minute
)

// bed is a cluster with GPU nodes and the operator, before there is a policy.
type bed struct {
	cluster   *cluster.Cluster
	simulator *simulator.Simulator
	// real is nil without a real node.
	real     machine
	operator *cluster.Operator
	// metrics is the operator's metrics endpoint.
	metrics string
	// before is the end of the audit log when the operator started.
	before cluster.Mark
}

// machine is a real node.
type machine interface {
	// PowerOff ends it and all that runs on it.
	PowerOff() error
}

// programs are what the demo runs besides the control plane.
type programs struct {
	operator string
	node     host.Programs
}

// buildAll compiles what is missing, which takes minutes the first time and seconds later.
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

// startBed starts everything; what it has started when it fails is still to be stopped. The
// simulator lives as long as ctx.
func startBed(ctx context.Context, built programs, opts options, progress io.Writer) (*bed, error) {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	b := &bed{}
	var err error
	fmt.Fprintln(progress, "starting the control plane ...")
	if b.cluster, err = cluster.Start(limited, clusterOptions(opts)); err != nil {
		return b, err
	}
	fmt.Fprintf(progress, "Kubernetes %s is up; KUBECONFIG=%s\n", b.cluster.Version, b.cluster.Kubeconfig())
	b.simulator, err = simulator.New(simulator.Options{Config: b.cluster.SimulatorConfig, Programs: built.node})
	if err != nil {
		return b, err
	}
	for _, f := range opts.faults {
		b.simulator.Break(f.operand, f.node, f.mode)
	}
	if err := b.simulator.Start(ctx); err != nil {
		return b, err
	}
	if err := b.addNodes(limited, opts.nodes, progress); err != nil {
		return b, err
	}
	if opts.real {
		// It serves as long as ctx lives.
		if b.real, err = addReal(ctx, b.cluster, progress); err != nil {
			return b, err
		}
	}
	fmt.Fprintf(progress, "%d GPU nodes are there; installing the operator ...\n", opts.total())
	if err := cluster.Install(limited, b.cluster.Config, configDir); err != nil {
		return b, err
	}
	return b, b.startOperator(limited, built.operator)
}

// addNodes makes the nodes. The last one runs the actual gpu-node, where this computer allows it.
func (b *bed) addNodes(ctx context.Context, count int, progress io.Writer) error {
	if _, err := b.simulator.AddNodes(ctx, count-1); err != nil {
		return err
	}
	// Node Feature Discovery has not seen the last one: gpu-node finds its GPUs.
	last := simulator.NodeSpec{Processes: true, Undiscovered: true}
	if err := b.simulator.CanRunProcesses(); err != nil {
		fmt.Fprintf(progress, "gpu-node is simulated on every node: %v\n", err)
		last = simulator.NodeSpec{}
	}
	name, err := b.simulator.AddNode(ctx, last)
	if err == nil && last.Processes {
		fmt.Fprintf(progress, "%s runs the actual gpu-node in its containers, below %s; other nodes simulate it\n", name, b.simulator.Dir())
	}
	return err
}

// startOperator runs the operator as in a cluster: with the rights of its ServiceAccount and no
// others, leader election and all endpoints.
func (b *bed) startOperator(ctx context.Context, binary string) error {
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, cluster.OperatorNamespace, serviceAccount, "")
	if err != nil {
		return err
	}
	if b.before, err = b.cluster.Mark(); err != nil {
		return err
	}
	if b.metrics, err = cluster.FreeAddress(); err != nil {
		return err
	}
	b.operator, err = cluster.StartOperator(ctx, cluster.OperatorOptions{
		Binary:     binary,
		Kubeconfig: kubeconfig,
		Args:       []string{"--leader-elect=true", "--metrics-bind-address=" + b.metrics, "--metrics-secure=false"},
		Env:        []string{"OPERATOR_IMAGE=" + operatorImage},
		LogFile:    filepath.Join(b.cluster.LogDir, "gpu-operator.log"),
	})
	return err
}

// ended is the error of an operator that has ended by itself; its log goes away with the cluster.
func (b *bed) ended() error {
	const tail = 4000
	log, err := os.ReadFile(b.operator.LogFile)
	if err != nil {
		return fmt.Errorf("read the log of the operator, which has ended: %w", err)
	}
	how := "exit code 0"
	if err := b.operator.Wait(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("the operator has ended (%s):\n%s", how, log[max(0, len(log)-tail):])
}

// stop ends all processes and leaves nothing behind.
func (b *bed) stop() error {
	var errs []error
	if b.operator != nil {
		errs = append(errs, b.operator.Stop())
	}
	if b.simulator != nil {
		b.simulator.Stop()
	}
	if b.real != nil {
		errs = append(errs, b.real.PowerOff())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Stop())
	}
	return errors.Join(errs...)
}

// loadPolicy reads the sample that users are told to start from.
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
func (b *bed) apply(ctx context.Context, policy *unstructured.Unstructured) error {
	c, err := client.New(b.cluster.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy), client.FieldOwner("demo")); err != nil {
		return fmt.Errorf("apply %s: %w", samplePolicy, err)
	}
	return nil
}
