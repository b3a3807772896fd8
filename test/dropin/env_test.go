package dropin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

const (
	repo       = "../.."
	release    = "gpu-operator"
	namespace  = "gpu-operator"
	policyName = "cluster-policy"
)

// env is an API server for the rows of a table.
type env struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	client  client.Client
	// tool is the user's Helm.
	tool packaged.Client
}

// newEnv starts an API server. Nothing acts on the objects.
func newEnv(t *testing.T) *env {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	c := cluster.StartFor(t, cluster.Options{Bare: true})
	return &env{
		WithT: NewWithT(t), t: t, cluster: c, client: cluster.NewClient(t, c.Config), tool: packaged.Client{
			Repo: repo, Home: t.TempDir(), Kubeconfig: c.Kubeconfig(), Namespace: namespace,
		},
	}
}

// in returns the env for a subtest: a failure there ends the subtest.
func (e *env) in(t *testing.T) *env {
	view := *e
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// helm runs Helm with all permissions and returns its output.
func (e *env) helm(args ...string) string {
	e.t.Helper()
	out, err := e.tryHelm(args...)
	e.Expect(err).NotTo(HaveOccurred())
	return out
}

func (e *env) tryHelm(args ...string) (string, error) {
	e.t.Helper()
	// The context of a test ends before its clean-up.
	return e.tool.Run(context.WithoutCancel(e.t.Context()), args...)
}

// install installs the chart with assignments separated by spaces. The end of the test removes the release.
func (e *env) install(set string) {
	e.t.Helper()
	e.t.Cleanup(func() { e.helm("uninstall", release, "--no-hooks") })
	e.helm(append([]string{"install", release, chart, "--create-namespace"}, packaged.Sets(set)...)...)
}

// render returns the objects of the chart with assignments separated by spaces.
func render(t *testing.T, set string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	args := []string{
		"template", release, chart, "--namespace", namespace, "--kube-version", version.NewestKubernetes + ".0",
	}
	args = slices.Concat(args, packaged.Sets(set), flags)
	text, err := packaged.Helm(t.Context(), repo, t.TempDir(), nil, args...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// valuesFile returns the flag for a file with these values.
func (e *env) valuesFile(values string) []string {
	e.t.Helper()
	path := filepath.Join(e.t.TempDir(), "values.yaml")
	e.Expect(os.WriteFile(path, []byte(values), 0o600)).To(Succeed())
	return []string{"--values", path}
}

// find returns the object of this kind and name.
func find(g *WithT, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	g.Expect(objects).To(BeEmpty(), "there is no %s %s", kind, name)
	return nil
}

// field returns the part of an object at a path of keys; nil if there is none.
func field(g Gomega, object *unstructured.Unstructured, path ...string) any {
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	g.Expect(err).NotTo(HaveOccurred())
	return value
}
