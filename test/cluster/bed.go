package cluster

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// What the environments of tests have in common. A failure ends the test.

// startTime is how long a control plane may take to start, on a busy machine.
const startTime = 2 * time.Minute

// StartFor starts a control plane until the end of the test, and installs the kustomizations of the folders.
func StartFor(tb testing.TB, opts Options, folders ...string) *Cluster {
	tb.Helper()
	return started(tb, opts.Version, func(ctx context.Context) (*Cluster, error) {
		c, err := Start(ctx, opts)
		if err != nil {
			return nil, err
		}
		tb.Cleanup(func() { check(tb, c.Stop()) })
		for _, folder := range folders {
			check(tb, Install(ctx, c.Config, folder))
		}
		return c, nil
	})
}

// started builds the programs of a version and calls start.
func started(tb testing.TB, version string, start func(context.Context) (*Cluster, error)) *Cluster {
	tb.Helper()
	_, err := EnsureBinaries(tb.Context(), version, os.Stderr)
	check(tb, err)
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	c, err := start(ctx)
	check(tb, err)
	return c
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Scheme returns the kinds of Kubernetes and of the operator.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1.AddToScheme, v1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
})

// NewClient returns a client of the kinds of Scheme.
func NewClient(tb testing.TB, config *rest.Config) client.Client {
	tb.Helper()
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	check(tb, err)
	return c
}

// MarkFor returns where the next request is in the audit log.
func (c *Cluster) MarkFor(tb testing.TB) Mark {
	tb.Helper()
	mark, err := c.Mark()
	check(tb, err)
	return mark
}

var shippedOperator, fastOperator = once(BuildOperator), once(BuildFastOperator)

func once(build func(context.Context, io.Writer) (string, error)) func() (string, error) {
	return sync.OnceValues(func() (string, error) { return build(context.Background(), os.Stderr) })
}

// ShippedOperator returns the binary of BuildOperator, which is built once.
func ShippedOperator(tb testing.TB) string {
	tb.Helper()
	binary, err := shippedOperator()
	check(tb, err)
	return binary
}

// FastOperator returns the binary of BuildFastOperator, which is built once.
func FastOperator(tb testing.TB) string {
	tb.Helper()
	binary, err := fastOperator()
	check(tb, err)
	return binary
}

// SamplePolicy returns the default sample.
func SamplePolicy() (*v1.ClusterPolicy, error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "config/samples/clusterpolicy.yaml"))
	if err != nil {
		return nil, err
	}
	policy := &v1.ClusterPolicy{}
	return policy, yaml.UnmarshalStrict(text, policy)
}

// PolicyFor returns the default sample.
func PolicyFor(tb testing.TB) *v1.ClusterPolicy {
	tb.Helper()
	policy, err := SamplePolicy()
	check(tb, err)
	return policy
}
