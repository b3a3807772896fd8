package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// samplePeriod is how often the operator's memory is sampled; the kernel only tracks the peak of the total, not of
// the anonymous part.
const samplePeriod = 100 * time.Millisecond

// operator is one operator process.
type operator struct {
	process *cluster.Operator
	// metrics is the address of its metrics endpoint.
	metrics string
	// filled is the time from its start until its caches were synced.
	filled time.Duration

	cancel  context.CancelFunc
	sampler sync.WaitGroup
	lock    sync.Mutex
	// anonymous is the peak sample of its anonymous memory.
	anonymous int64
}

// startOperator runs the operator as its Deployment does: with its ServiceAccount, its variables and leader election.
func (e *env) startOperator(ctx context.Context) error {
	variables, err := shippedVariables()
	if err != nil {
		return err
	}
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(ctx, namespace, account, "")
	if err != nil {
		return err
	}
	o := &operator{}
	if o.metrics, err = cluster.FreeAddress(); err != nil {
		return err
	}
	begin := time.Now()
	o.process, err = cluster.StartOperator(ctx, cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: kubeconfig, Env: variables,
		Args:    []string{"--leader-elect=true", "--metrics-bind-address=" + o.metrics, "--metrics-secure=false"},
		LogFile: filepath.Join(e.cluster.LogDir, "gpu-operator.log"),
	})
	if err != nil {
		return err
	}
	o.filled = time.Since(begin)
	e.track(ctx, o)
	return nil
}

// track makes a process the operator of the environment, and samples its memory.
func (e *env) track(ctx context.Context, o *operator) {
	ctx, o.cancel = context.WithCancel(ctx)
	o.sampler.Go(func() { o.sample(ctx) })
	e.operator = o
}

// sample samples the operator's memory until it is stopped.
func (o *operator) sample(ctx context.Context) {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.process.Done():
			return
		case <-tick.C:
		}
		// An exiting process has no usage to read.
		if usage, err := o.process.Usage(); err == nil {
			o.lock.Lock()
			o.anonymous = max(o.anonymous, usage.Anonymous)
			o.lock.Unlock()
		}
	}
}

// usage returns the resource usage of the process so far, and the peak sample of its anonymous memory.
func (o *operator) usage() (now cluster.Usage, anonymous int64, err error) {
	now, err = o.process.Usage()
	o.lock.Lock()
	defer o.lock.Unlock()
	return now, max(o.anonymous, now.Anonymous), err
}

func (o *operator) stop() error {
	o.cancel()
	o.sampler.Wait()
	return o.process.Stop()
}

// shippedVariables returns the variables of the operator's Deployment with literal values.
func shippedVariables() ([]string, error) {
	objects, err := cluster.Render(configDir)
	if err != nil {
		return nil, err
	}
	var variables []string
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
			return nil, fmt.Errorf("read the operator's Deployment: %w", err)
		}
		if variables, err = literalVariables(deployment.Spec.Template.Spec.Containers[0].Env); err != nil {
			return nil, fmt.Errorf("read the operator's Deployment: %w", err)
		}
	}
	return variables, nil
}

// memoryVariables control how the Go runtime trades memory for CPU.
var memoryVariables = []string{"GOGC", "GOMEMLIMIT"}

// literalVariables returns the variables with literal values in the Deployment. The others come from the cluster,
// such as the namespace, and are passed to the process separately. Variables that affect the measurements must be
// literal.
func literalVariables(all []corev1.EnvVar) ([]string, error) {
	var variables []string
	for _, variable := range all {
		switch {
		case variable.Value != "":
			variables = append(variables, variable.Name+"="+variable.Value)
		case slices.Contains(memoryVariables, variable.Name):
			return nil, fmt.Errorf("%s has no literal value there, so that bench cannot use the shipped one: set value "+
				"instead of valueFrom", variable.Name)
		}
	}
	return variables, nil
}
