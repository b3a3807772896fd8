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
	// kubeletRelist is how often a kubelet relists its containers without evented PLEG.
	kubeletRelist = time.Second

	// startLimit is the timeout from the first process of the control plane to the end of the installation.
	startLimit = 3 * time.Minute
)

// env is a control plane with GPU nodes and the installed objects. The operator is started separately.
type env struct {
	options
	// binary is the operator's program.
	binary string
	// size is the number of nodes, without those that join temporarily.
	size    int
	cluster *cluster.Cluster
	sim     *simulator.Simulator
	// client has all permissions; its requests are not in the audit log.
	client   client.Client
	operator *operator
	// ready is when the policy was ready after the installation, and readyMark the end of the audit log when the
	// condition of every node was True as well.
	ready     time.Time
	readyMark cluster.Mark
}

// startEnv starts a control plane without nodes. On an error the caller must still stop what has started.
func startEnv(ctx context.Context, o options, binary string, size int, install installer) (*env, error) {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	e := &env{options: o, binary: binary, size: size}
	opts, err := o.setting().clusterOptions(limited)
	if err != nil {
		return e, err
	}
	if e.cluster, err = cluster.Start(limited, opts); err != nil {
		return e, err
	}
	timing := o.timing()
	if e.sim, err = simulator.New(simulator.Options{
		Config: e.cluster.SimulatorConfig, Seed: simulationSeed, Timing: &timing,
	}); err != nil {
		return e, err
	}
	// If kwok simulates the pods, it only creates the nodes.
	if !o.stages.byKwok() {
		if err := e.sim.Start(ctx); err != nil {
			return e, err
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(
		corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), nodev1.AddToScheme(scheme), v1.AddToScheme(scheme),
	); err != nil {
		return e, fmt.Errorf("register types: %w", err)
	}
	if e.client, err = client.New(e.cluster.SimulatorConfig, client.Options{Scheme: scheme}); err != nil {
		return e, fmt.Errorf("make client: %w", err)
	}
	if o.plane == minimal {
		if err := e.startPlacer(ctx, os.Stderr); err != nil {
			return e, err
		}
	}
	return e, install(limited, e)
}

// installer creates the objects of an operator.
type installer func(context.Context, *env) error

// installOwn creates those of this operator.
func installOwn(ctx context.Context, e *env) error {
	return cluster.Install(ctx, e.cluster.SimulatorConfig, configDir)
}

// stop ends all processes and removes their files.
func (e *env) stop() error {
	var errs []error
	if e.operator != nil {
		errs = append(errs, e.operator.stop())
	}
	if e.sim != nil {
		e.sim.Stop()
	}
	if e.cluster != nil {
		errs = append(errs, e.cluster.Stop())
	}
	return errors.Join(errs...)
}

// wanted returns the policy that is installed.
func (o *options) wanted() (*v1.ClusterPolicy, error) {
	text, err := os.ReadFile(filepath.FromSlash(o.policy))
	if err != nil {
		return nil, fmt.Errorf("read the policy: %w", err)
	}
	object := &v1.ClusterPolicy{}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return nil, fmt.Errorf("parse %s: %w", o.policy, err)
	}
	return object, nil
}

// livePolicy reads the policy from the cluster.
func (e *env) livePolicy(ctx context.Context) (*v1.ClusterPolicy, error) {
	want, err := e.wanted()
	if err != nil {
		return nil, err
	}
	object := &v1.ClusterPolicy{}
	if err := e.client.Get(ctx, client.ObjectKeyFromObject(want), object); err != nil {
		return nil, fmt.Errorf("read ClusterPolicy %s: %w", want.Name, err)
	}
	return object, nil
}

// callsSince returns the operator's requests since the mark.
func (e *env) callsSince(mark cluster.Mark) (cluster.Calls, error) {
	return e.callsOf(account, mark)
}

// callsOf returns the requests of a ServiceAccount since the mark.
func (e *env) callsOf(account string, mark cluster.Mark) (cluster.Calls, error) {
	calls, err := e.cluster.Since(mark)
	return calls.By(cluster.ServiceAccountUser(namespace, account)), err
}
