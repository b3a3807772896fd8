package observe

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// ReferenceCache returns the cache of objects that operands refer to; it must be started. It is separate from the
// manager's cache, which has only the operator's objects. It keeps a digest and the keys of the data, so that no Secret
// stays in memory, and of the bindings of admission policies the two that the operator may read.
func ReferenceCache(config *rest.Config, namespace string, options cache.Options) (cache.Cache, error) {
	options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	options.DefaultTransform = TrimReference
	options.ByObject = onlyBinding(labels.DiscoveryPolicyBinding)
	all, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	options.ByObject = onlyBinding(labels.HealthPolicyBinding)
	health, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	return &referenceCache{Cache: all, health: health}, nil
}

// onlyBinding limits a cache to one binding of an admission policy: a watch of several by their names is not possible.
func onlyBinding(name string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&admissionv1.ValidatingAdmissionPolicyBinding{}: {Field: fields.OneTermEqualSelector("metadata.name", name)},
	}
}

// referenceCache has the binding of the health agent's policy in a cache of its own.
type referenceCache struct {
	cache.Cache
	health cache.Cache
}

// of returns the cache of the object with this name.
func (c *referenceCache) of(object client.Object, name string) cache.Cache {
	if _, is := object.(*admissionv1.ValidatingAdmissionPolicyBinding); is && name == labels.HealthPolicyBinding {
		return c.health
	}
	return c.Cache
}

// Get implements client.Reader.
func (c *referenceCache) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	return c.of(object, key.Name).Get(ctx, key, object, options...)
}

// GetInformer implements cache.Informers. The name of the object chooses between the bindings.
func (c *referenceCache) GetInformer(
	ctx context.Context, object client.Object, options ...cache.InformerGetOption,
) (cache.Informer, error) {
	return c.of(object, object.GetName()).GetInformer(ctx, object, options...)
}

// Start implements cache.Informers.
func (c *referenceCache) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- c.health.Start(ctx)
		cancel()
	}()
	err := c.Cache.Start(ctx)
	cancel()
	if healthErr := <-ended; err == nil {
		err = healthErr
	}
	return err
}

// WaitForCacheSync implements cache.Informers.
func (c *referenceCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) && c.health.WaitForCacheSync(ctx)
}
