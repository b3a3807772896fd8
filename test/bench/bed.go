package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	namespace      = cluster.OperatorNamespace
	account        = "gpu-operator"
	configDir      = "config/default"
	samplePolicy   = "config/samples/clusterpolicy.yaml"
	simulationSeed = 1
	// kubeletRelist is how often a kubelet looks at its containers, unless it is told of each event.
	kubeletRelist = time.Second

	// startLimit is for all from the first process of the control plane to its installation.
	startLimit = 3 * time.Minute
)

var operatorUser = cluster.ServiceAccountUser(namespace, account)

// bed is a control plane with GPU nodes and what the installer brings. The operator is started apart.
type bed struct {
	options
	// binary is the operator's program.
	binary string
	// size is how many nodes there are, beside those that join for a while.
	size    int
	cluster *cluster.Cluster
	sim     *simulator.Simulator
	// client has all rights; what it asks is not in the audit log.
	client   client.Client
	operator *operator
	// ready is when the policy was ready after the installation, and readyMark the end of the audit log when every node
	// had said so, too.
	ready     time.Time
	readyMark cluster.Mark
}

// startBed starts a control plane without nodes. What it has started when it fails is still to be stopped.
func startBed(ctx context.Context, o options, binary string, size int) (*bed, error) {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	b := &bed{options: o, binary: binary, size: size}
	opts, err := o.stages.clusterOptions(limited)
	if err != nil {
		return b, err
	}
	if b.cluster, err = cluster.Start(limited, opts); err != nil {
		return b, err
	}
	timing := simulator.DefaultTiming()
	timing.Relist = kubeletRelist
	if b.sim, err = simulator.New(simulator.Options{Config: b.cluster.SimulatorConfig, Seed: simulationSeed, Timing: &timing}); err != nil {
		return b, err
	}
	// With the fast stages it makes the nodes, and kwok plays their pods.
	if o.stages != fast {
		if err := b.sim.Start(ctx); err != nil {
			return b, err
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), nodev1.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return b, fmt.Errorf("register types: %w", err)
	}
	if b.client, err = client.New(b.cluster.SimulatorConfig, client.Options{Scheme: scheme}); err != nil {
		return b, fmt.Errorf("make client: %w", err)
	}
	return b, cluster.Install(limited, b.cluster.SimulatorConfig, configDir)
}

// stop ends all processes and leaves nothing behind.
func (b *bed) stop() error {
	var errs []error
	if b.operator != nil {
		errs = append(errs, b.operator.stop())
	}
	if b.sim != nil {
		b.sim.Stop()
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Stop())
	}
	return errors.Join(errs...)
}

// policy is the sample that users are told to start from.
func policy() (*v1.ClusterPolicy, error) {
	text, err := os.ReadFile(filepath.FromSlash(samplePolicy))
	if err != nil {
		return nil, fmt.Errorf("read the sample policy: %w", err)
	}
	object := &v1.ClusterPolicy{}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return nil, fmt.Errorf("parse %s: %w", samplePolicy, err)
	}
	return object, nil
}

// livePolicy is the policy as it is in the cluster.
func (b *bed) livePolicy(ctx context.Context) (*v1.ClusterPolicy, error) {
	want, err := policy()
	if err != nil {
		return nil, err
	}
	object := &v1.ClusterPolicy{}
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(want), object); err != nil {
		return nil, fmt.Errorf("read ClusterPolicy %s: %w", want.Name, err)
	}
	return object, nil
}

// callsSince are the operator's own calls since the mark.
func (b *bed) callsSince(mark cluster.Mark) (cluster.Calls, error) {
	calls, err := b.cluster.Since(mark)
	return calls.By(operatorUser), err
}
