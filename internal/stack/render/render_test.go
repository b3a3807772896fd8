package render_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

const helper = "ghcr.io/clusterpolicy/gpu-operator:v1.0.0"

var owner = render.Owner{Name: "cluster-policy", UID: "11111111-2222-3333-4444-555555555555"}

func catalogue(t *testing.T) operand.Catalogue {
	t.Helper()
	all, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// node is a discovered GPU node on which every operand is installed.
func node(osID, osVersion string) nodeinfo.Facts {
	return nodeinfo.Facts{
		Name: osID, HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer, Runtime: "containerd",
		OSID: osID, OSVersion: osVersion, Architecture: "amd64", MIGCapable: "true",
	}
}

// runs is a GPU node with another container runtime, in a release that supports everything.
func runs(runtime string, distribution nodeinfo.Distribution) nodeinfo.Facts {
	facts := node("ubuntu", "24.04")
	facts.Name, facts.Runtime, facts.Distribution = runtime+string(distribution), runtime, distribution
	facts.RuntimeVersion = map[string]string{"containerd": "2.1.4", "cri-o": "1.34.0", "docker": "28.3.3"}[runtime]
	return facts
}

// situation is the input of a rendering.
type situation struct {
	spec   v1.ClusterPolicySpec
	helper string
	// images replace default images.
	images image.Overrides
	nodes  []nodeinfo.Facts
	live   map[string]rollout.Live
	// optional are the kinds of the Prometheus operator that the cluster serves.
	optional map[operand.OptionalKind]bool
	// toolkit are the images of OpenShift's driver toolkit.
	toolkit map[string]string
	// contents are those of the references of the spec.
	contents map[operand.Reference]operand.Content
	// configMaps are the keys of the user's ConfigMaps, by name. Without contents, all other references exist then.
	configMaps map[string][]string
	// proxy is that of the operator's environment.
	proxy v1.ProxySpec
	// openShift is what the configuration of OpenShift has.
	openShift operand.OpenShiftCluster
	// endpoint is that of the manager's metrics.
	endpoint operand.MetricsEndpoint
}

func (s situation) plan(t *testing.T) plan.Plan {
	t.Helper()
	in := operand.Input{
		Spec:            effective.Of(s.spec),
		Namespace:       "gpu-operator",
		OperatorImage:   helper,
		Images:          s.images,
		DriverToolkit:   s.toolkit,
		Contents:        s.contents,
		Proxy:           s.proxy,
		OperatorMetrics: s.endpoint,
	}
	in.OpenShiftCluster = s.openShift
	if s.helper != "" {
		in.OperatorImage = s.helper
	}
	if s.configMaps != nil && s.contents == nil {
		known := map[operand.Reference]operand.Content{}
		for name, keys := range s.configMaps {
			known[operand.Reference{Kind: operand.ConfigMap, Name: name}] = operand.Content{Digest: name, Keys: keys}
		}
		in.Contents = catalogue(t).Assume(in, known)
	}
	nodes := s.nodes
	if nodes == nil {
		nodes = []nodeinfo.Facts{node("ubuntu", "24.04")}
	}
	return plan.Compute(plan.Decide(catalogue(t), in), s.optional, nodes)
}

// objects renders the steps that apply something, by operand.
func (s situation) objects(t *testing.T) map[operand.Name][]manifest.Object {
	t.Helper()
	p := s.plan(t)
	rendered := map[operand.Name][]manifest.Object{}
	for _, step := range p.Steps {
		if step.Action != plan.Apply {
			continue
		}
		objects, err := render.Step(p, step, owner, s.live)
		if err != nil {
			t.Fatal(err)
		}
		rendered[step.Operand.Name] = objects
	}
	return rendered
}

// daemonSets returns the rendered DaemonSets by operand.
func (s situation) daemonSets(t *testing.T) map[operand.Name][]*appsv1.DaemonSet {
	t.Helper()
	found := map[operand.Name][]*appsv1.DaemonSet{}
	for name, objects := range s.objects(t) {
		for _, object := range objects {
			if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
				found[name] = append(found[name], ds)
			}
		}
	}
	return found
}

func (s situation) daemonSet(t *testing.T, name operand.Name) *appsv1.DaemonSet {
	t.Helper()
	found := s.daemonSets(t)[name]
	if len(found) != 1 {
		t.Fatalf("%s has %d DaemonSets, want one", name, len(found))
	}
	return found[0]
}

func containers(pod *corev1.PodSpec) []corev1.Container {
	return append(append([]corev1.Container{}, pod.InitContainers...), pod.Containers...)
}

func toYAML(t *testing.T, objects []manifest.Object) string {
	t.Helper()
	var documents []string
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(data))
	}
	return strings.Join(documents, "---\n")
}
