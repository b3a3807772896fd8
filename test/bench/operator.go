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

// samplePeriod is how often the memory of the operator is read; the kernel keeps the peak of all of it, but not
// that of its anonymous part.
const samplePeriod = 100 * time.Millisecond

// operator is one run of the operator's process.
type operator struct {
	process *cluster.Operator
	// metrics is the address of its endpoint.
	metrics string
	// filled is how long it took from its start until its caches were filled.
	filled time.Duration

	cancel  context.CancelFunc
	sampler sync.WaitGroup
	lock    sync.Mutex
	// anonymous is the most that was seen of the part of its memory that no file backs.
	anonymous int64
}

// startOperator runs the operator as its Deployment does: with its account, its variables and leader election.
func (b *bed) startOperator(ctx context.Context) error {
	variables, err := shippedVariables()
	if err != nil {
		return err
	}
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, namespace, account, "")
	if err != nil {
		return err
	}
	o := &operator{}
	if o.metrics, err = cluster.FreeAddress(); err != nil {
		return err
	}
	begin := time.Now()
	o.process, err = cluster.StartOperator(ctx, cluster.OperatorOptions{
		Binary: b.binary, Kubeconfig: kubeconfig, Env: variables,
		Args:    []string{"--leader-elect=true", "--metrics-bind-address=" + o.metrics, "--metrics-secure=false"},
		LogFile: filepath.Join(b.cluster.LogDir, "gpu-operator.log"),
	})
	if err != nil {
		return err
	}
	o.filled = time.Since(begin)
	ctx, o.cancel = context.WithCancel(ctx)
	o.sampler.Go(func() { o.sample(ctx) })
	b.operator = o
	return nil
}

// sample reads the operator's memory until it is stopped.
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
		// A process that is ending has nothing to read.
		if usage, err := o.process.Usage(); err == nil {
			o.lock.Lock()
			o.anonymous = max(o.anonymous, usage.Anonymous)
			o.lock.Unlock()
		}
	}
}

// usage is what the process has used so far, and the most that was seen of its anonymous memory.
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

// shippedVariables are those of the operator's Deployment whose values stand there.
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

// memoryVariables decide what the Go runtime trades of memory against CPU.
var memoryVariables = []string{"GOGC", "GOMEMLIMIT"}

// literalVariables are the variables whose values stand in the Deployment. The others come from the cluster, such as
// the namespace, and are given to the process apart. One that changes what is measured must stand there.
func literalVariables(all []corev1.EnvVar) ([]string, error) {
	var variables []string
	for _, variable := range all {
		switch {
		case variable.Value != "":
			variables = append(variables, variable.Name+"="+variable.Value)
		case slices.Contains(memoryVariables, variable.Name):
			return nil, fmt.Errorf("%s has no value of its own there, so that it cannot be measured as shipped: write it as a value", variable.Name)
		}
	}
	return variables, nil
}
