package dropin

import (
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	operandrender "github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// situation is a policy with the cluster for which the operator renders its objects.
type situation struct {
	spec v1.ClusterPolicySpec
	// nodes have one of Ubuntu by default.
	nodes []nodeinfo.Facts
	// keys of ConfigMaps and Secrets, by their names. All other objects that the policy names exist, too.
	keys map[string][]string
	// configMaps are those whose content matters.
	configMaps []*corev1.ConfigMap
	// toolkit are the images of OpenShift's driver toolkit.
	toolkit map[string]string
	// openShift is what the configuration of OpenShift has.
	openShift operand.OpenShiftCluster
	// images replace default images.
	images image.Overrides
	// monitored: the cluster serves the kinds of the Prometheus operator.
	monitored bool
}

// gpuNode is a node with MIG-capable GPUs and containerd.
func gpuNode(osID, osVersion string) nodeinfo.Facts {
	return nodeinfo.Facts{
		Name: "gpu", HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer, Runtime: "containerd",
		RuntimeVersion: "2.1.4", OSID: osID, OSVersion: osVersion, Architecture: "amd64", MIGCapable: "true",
		Kernel: "6.8.0-60-generic",
	}
}

// withRuntime is the node with another container runtime, in a release that supports everything.
func withRuntime(runtime string, facts nodeinfo.Facts) nodeinfo.Facts {
	facts.Name, facts.Runtime = runtime, runtime
	facts.RuntimeVersion = map[string]string{"containerd": "2.1.4", "cri-o": "1.34.0", "docker": "28.3.3"}[runtime]
	return facts
}

// distributedBy is a node of a Kubernetes distribution.
func distributedBy(distribution nodeinfo.Distribution) nodeinfo.Facts {
	facts := gpuNode("ubuntu", "24.04")
	facts.Distribution = distribution
	return facts
}

// coreOSRelease is the release of Red Hat CoreOS that coreOS has and driverToolkit is for.
const coreOSRelease = "418.94.202501221327-0"

var driverToolkit = map[string]string{coreOSRelease: "example.com/toolkit:1"}

// coreOS is a node of OpenShift.
func coreOS() nodeinfo.Facts {
	facts := withRuntime("cri-o", gpuNode("rhcos", "4.18"))
	facts.Distribution, facts.OSTree = "openshift", coreOSRelease
	return facts
}

func (s situation) plan(e *env) plan.Plan {
	e.t.Helper()
	catalogue, err := operands.Catalogue()
	e.Expect(err).NotTo(HaveOccurred())
	in := operand.Input{
		Spec: effective.Of(s.spec), Namespace: namespace, OperatorImage: "example.com/operator:1", Images: s.images,
		DriverToolkit: s.toolkit, OpenShiftCluster: s.openShift, Optional: map[operand.OptionalKind]bool{
			operand.ServiceMonitor: s.monitored, operand.PrometheusRule: s.monitored,
		},
	}
	known := map[operand.Reference]operand.Content{}
	for name, keys := range s.keys {
		for _, kind := range []operand.ReferenceKind{operand.ConfigMap, operand.Secret} {
			known[operand.Reference{Kind: kind, Name: name}] = operand.Content{Digest: "1", Keys: keys}
		}
	}
	for _, configMap := range s.configMaps {
		known[operand.Reference{Kind: operand.ConfigMap, Name: configMap.Name}] = observe.ConfigMapContent(configMap)
	}
	in.Contents = catalogue.Assume(in, known)
	nodes := s.nodes
	if nodes == nil {
		nodes = []nodeinfo.Facts{gpuNode("ubuntu", "24.04")}
	}
	return plan.Compute(plan.Decide(catalogue, in), in.Optional, nodes)
}

// intents returns the objects as they are applied, by operand. No operand may be refused.
func (s situation) intents(e *env) map[operand.Name][]*unstructured.Unstructured {
	e.t.Helper()
	p := s.plan(e)
	found := map[operand.Name][]*unstructured.Unstructured{}
	for _, step := range p.Steps {
		e.Expect(step.State).NotTo(BeElementOf(v1.OperandInvalid, v1.OperandWaiting),
			"%s: %s", step.Operand.Name, step.Message)
		if step.Action != plan.Apply {
			continue
		}
		list, err := operandrender.Step(p, step, operandrender.Owner{Name: policyName, UID: policyUID}, nil)
		e.Expect(err).NotTo(HaveOccurred())
		for _, object := range list {
			intent, err := apply.Intent(object)
			e.Expect(err).NotTo(HaveOccurred())
			found[step.Operand.Name] = append(found[step.Operand.Name], intent)
		}
	}
	return found
}

// policyUID owns the objects, which are not stored.
const policyUID = "11111111-2222-3333-4444-555555555555"

// daemonSets returns the DaemonSets by operand as the API server, which accepts all objects, would store them.
func (s situation) daemonSets(e *env) map[operand.Name][]*appsv1.DaemonSet {
	e.t.Helper()
	strict := &client.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	}
	found := map[operand.Name][]*appsv1.DaemonSet{}
	for name, intents := range s.intents(e) {
		for _, object := range intents {
			e.Expect(e.client.Create(e.t.Context(), object, strict)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
			if object.GetKind() == "DaemonSet" {
				set := &appsv1.DaemonSet{}
				e.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set)).To(Succeed())
				found[name] = append(found[name], set)
			}
		}
	}
	return found
}

// daemonSet returns the only DaemonSet of an operand.
func (s situation) daemonSet(e *env, name operand.Name) *appsv1.DaemonSet {
	e.t.Helper()
	found := s.daemonSets(e)[name]
	e.Expect(found).To(HaveLen(1), "%s", name)
	return found[0]
}

// containers returns all of a DaemonSet, init containers first.
func containers(set *appsv1.DaemonSet) []corev1.Container {
	return slices.Concat(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers)
}

// container returns the one with this name.
func container(g *WithT, set *appsv1.DaemonSet, name string) corev1.Container {
	all := containers(set)
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	g.Expect(at).NotTo(Equal(-1), "%s has the container %s", set.Name, name)
	return all[at]
}

// mountedFiles returns the mounts of single files of a container below these directories, by path: volume and key.
func mountedFiles(c corev1.Container, directories ...string) map[string]string {
	found := map[string]string{}
	for _, mount := range c.VolumeMounts {
		for _, directory := range directories {
			if strings.HasPrefix(mount.MountPath, directory) {
				found[mount.MountPath] = mount.Name + "/" + mount.SubPath
			}
		}
	}
	return found
}

// valuesOf returns the values of a variable, of which the last one counts.
func valuesOf(c corev1.Container, name string) (values []string) {
	for _, variable := range c.Env {
		if variable.Name == name {
			values = append(values, variable.Value)
		}
	}
	return values
}
