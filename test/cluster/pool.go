package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	// resetLimit is how long a reset may take. A cluster that takes longer is stopped, and the next test starts one.
	resetLimit = 45 * time.Second
	// resetInterval lets the controllers act on what a round of a reset deleted.
	resetInterval = 200 * time.Millisecond
	// resetParallel is how many objects are written at a time.
	resetParallel = 8
)

// leftOut are the namespaces whose Events and Leases a reset deletes: a Snapshot leaves these kinds out, but tests
// count Events, and an operator waits for the Lease of another.
var leftOut = []string{metav1.NamespaceDefault, OperatorNamespace, "kube-node-lease"}

// Pool lends control planes to the tests of a package, each to one test at a time: a start costs more CPU time than
// most tests. TestMain stops them, by Run.
type Pool struct {
	// Folder has the kustomization that is installed on each control plane; the default is none.
	Folder string

	lock sync.Mutex
	// idle are those that no test has, by version.
	idle map[string][]*pooled
}

// pooled is a control plane with the objects that it had after the installation.
type pooled struct {
	*Cluster
	client    dynamic.Interface
	installed map[objectKey]*unstructured.Unstructured
}

// objectKey identifies an object in a cluster.
type objectKey struct {
	schema.GroupVersionResource
	types.NamespacedName
}

// Lend returns a control plane of a version, as for Options. When the test ends it goes back to the pool, with all
// objects as after the installation. It is stopped instead if the test failed, or if the objects cannot be restored.
func (p *Pool) Lend(tb testing.TB, version string) *Cluster {
	tb.Helper()
	return started(tb, version, func(ctx context.Context) (*Cluster, error) {
		c := p.take(version)
		if c == nil {
			var err error
			if c, err = startPooled(ctx, version, p.Folder); err != nil {
				return nil, err
			}
		}
		tb.Cleanup(func() {
			if err := p.takeBack(tb, version, c); err != nil {
				tb.Errorf("stop the control plane: %v", err)
			}
		})
		return c.Cluster, nil
	})
}

// Tests returns tests after which the pool is stopped.
func (p *Pool) Tests(tests Tests) Tests { return pooledTests{p, tests} }

type pooledTests struct {
	pool *Pool
	Tests
}

func (p pooledTests) Run() int {
	code := p.Tests.Run()
	if err := p.pool.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Stop ends all control planes. No test runs.
func (p *Pool) Stop() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	var errs []error
	for _, clusters := range p.idle {
		for _, c := range clusters {
			errs = append(errs, c.Stop())
		}
	}
	p.idle = nil
	return errors.Join(errs...)
}

func (p *Pool) take(version string) *pooled {
	p.lock.Lock()
	defer p.lock.Unlock()
	all := p.idle[version]
	if len(all) == 0 {
		return nil
	}
	last := len(all) - 1
	p.idle[version] = all[:last]
	return all[last]
}

func (p *Pool) takeBack(tb testing.TB, version string, c *pooled) error {
	tb.Helper()
	if tb.Failed() {
		return c.Stop()
	}
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), resetLimit)
	defer cancel()
	if err := c.reset(ctx); err != nil {
		tb.Logf("this control plane is not lent again: %v", err)
		return c.Stop()
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.idle == nil {
		p.idle = map[string][]*pooled{}
	}
	p.idle[version] = append(p.idle[version], c)
	return nil
}

// startPooled starts a control plane, installs the kustomization and remembers all objects.
func startPooled(ctx context.Context, version, folder string) (*pooled, error) {
	started, err := Start(ctx, Options{Version: version})
	if err != nil {
		return nil, err
	}
	c := &pooled{Cluster: started}
	if err := c.install(ctx, folder); err != nil {
		return nil, errors.Join(err, started.Stop())
	}
	return c, nil
}

func (c *pooled) install(ctx context.Context, folder string) error {
	if folder != "" {
		if err := Install(ctx, c.SimulatorConfig, folder); err != nil {
			return err
		}
	}
	// The controllers add objects to the new namespace.
	if _, err := StableSnapshot(ctx, c.SimulatorConfig); err != nil {
		return err
	}
	var err error
	if c.client, err = dynamic.NewForConfig(c.SimulatorConfig); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	c.installed, err = c.objects(ctx)
	return err
}

// objects returns all objects of Objects by their keys.
func (c *pooled) objects(ctx context.Context) (map[objectKey]*unstructured.Unstructured, error) {
	found := map[objectKey]*unstructured.Unstructured{}
	err := eachObject(ctx, c.SimulatorConfig, c.client,
		func(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
			name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
			found[objectKey{resource, name}] = object
		})
	return found, err
}

// reset makes all objects as after the installation. kwok is started again, so that it knows nothing of the nodes of
// an earlier test, whose names the next one may use.
func (c *pooled) reset(ctx context.Context) error {
	err := c.restart("kwok", func() error {
		if err := c.restoreAll(ctx); err != nil {
			return err
		}
		return c.deleteLeftOut(ctx)
	})
	if err != nil {
		return fmt.Errorf("reset the control plane: %w", err)
	}
	return nil
}

// restoreAll deletes, updates and creates objects in as many rounds as it takes: an admission policy may refuse a
// deletion until it is gone itself.
func (c *pooled) restoreAll(ctx context.Context) error {
	for {
		now, err := c.objects(ctx)
		if err != nil {
			return err
		}
		wrong, err := c.restore(ctx, now)
		if wrong == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d objects are not as after the installation: %w", wrong, ctx.Err()), err)
		case <-time.After(resetInterval):
		}
	}
}

// restore writes each object that is not as after the installation. It returns their number, and the first write that
// was refused.
func (c *pooled) restore(ctx context.Context, now map[objectKey]*unstructured.Unstructured) (wrong int, err error) {
	var group errgroup.Group
	group.SetLimit(resetParallel)
	for key, object := range now {
		before, known := c.installed[key]
		switch {
		case !known:
			wrong++
			group.Go(func() error { return c.remove(ctx, key, object) })
		case !sameObject(before, object):
			wrong++
			group.Go(func() error { return c.putBack(ctx, key, before, object) })
		}
	}
	for key, before := range c.installed {
		if _, exists := now[key]; !exists {
			wrong++
			group.Go(func() error { return c.createAgain(ctx, key, before) })
		}
	}
	return wrong, group.Wait()
}

// putBack updates an object to what it was.
func (c *pooled) putBack(ctx context.Context, key objectKey, before, now *unstructured.Unstructured) error {
	again := before.DeepCopy()
	again.SetUID(now.GetUID())
	again.SetResourceVersion(now.GetResourceVersion())
	_, err := c.of(key).Update(ctx, again, metav1.UpdateOptions{})
	return err
}

// createAgain creates a deleted object as it was.
func (c *pooled) createAgain(ctx context.Context, key objectKey, before *unstructured.Unstructured) error {
	again := before.DeepCopy()
	again.SetUID("")
	again.SetResourceVersion("")
	_, err := c.of(key).Create(ctx, again, metav1.CreateOptions{})
	return err
}

// remove deletes an object now: no kubelet and no operator that it could wait for runs.
func (c *pooled) remove(ctx context.Context, key objectKey, object *unstructured.Unstructured) error {
	if len(object.GetFinalizers()) > 0 {
		none := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := c.of(key).Patch(ctx, key.Name, types.MergePatchType, none, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	err := c.of(key).Delete(ctx, key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// deleteLeftOut deletes the objects of leftOut.
func (c *pooled) deleteLeftOut(ctx context.Context) error {
	kinds := []schema.GroupVersionResource{
		{Version: "v1", Resource: "events"}, {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	}
	var errs []error
	for _, kind := range kinds {
		for _, namespace := range leftOut {
			errs = append(errs, c.client.Resource(kind).Namespace(namespace).
				DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		}
	}
	return errors.Join(errs...)
}

// of returns the client for the kind and namespace of an object.
func (c *pooled) of(key objectKey) dynamic.ResourceInterface {
	if key.Namespace == "" {
		return c.client.Resource(key.GroupVersionResource)
	}
	return c.client.Resource(key.GroupVersionResource).Namespace(key.Namespace)
}

// sameObject reports whether two objects are equal but for what the API server and controllers write.
func sameObject(a, b *unstructured.Unstructured) bool {
	return b.GetDeletionTimestamp() == nil && cmp.Equal(withoutServerFields(a), withoutServerFields(b))
}

func withoutServerFields(object *unstructured.Unstructured) map[string]any {
	plain := object.DeepCopy()
	for _, field := range slices.Concat(notCompared, []string{"generation"}) {
		unstructured.RemoveNestedField(plain.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(plain.Object, "status")
	return plain.Object
}
