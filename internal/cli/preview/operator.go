package preview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/operatormetrics"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// operator is the operator's own container; nil if the cluster has none, or it was not read.
func (c *Cluster) operator() *corev1.Container {
	for _, deployment := range inNamespace[*appsv1.Deployment](c) {
		if container := OperatorOf(deployment); container != nil {
			return container
		}
	}
	return nil
}

// OwnVariable is an environment variable that this operator's container has, and NVIDIA's does not: the image of its
// helpers.
const OwnVariable = "OPERATOR_IMAGE"

// OperatorOf returns the operator's own container in a Deployment; nil if the Deployment is not the operator's.
func OperatorOf(deployment *appsv1.Deployment) *corev1.Container {
	template := &deployment.Spec.Template
	i := slices.IndexFunc(template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(variable corev1.EnvVar) bool { return variable.Name == OwnVariable })
	})
	if template.Labels[labels.Component] != labels.ManagedByValue || i < 0 {
		return nil
	}
	return &template.Spec.Containers[i]
}

// variables returns the operator's variables. Of those with the same name the last one counts.
func (c *Cluster) variables() func(string) string {
	container := c.operator()
	return func(name string) string {
		if value, given := c.Given.Variables[name]; given {
			return value
		}
		if container == nil {
			return ""
		}
		for _, variable := range slices.Backward(container.Env) {
			if variable.Name == name {
				return variable.Value
			}
		}
		return ""
	}
}

// aboutOperator returns sentences about what of the operator's images, variables and flags is not known.
func (c *Cluster) aboutOperator() []string {
	container := c.operator()
	if container == nil {
		source := "that of most DaemonSets, which may be of an earlier release"
		switch applied := c.appliedHelper(); {
		case c.Given.Image != "":
			source = "as given"
		case applied == "":
			source = "that of this plugin's release"
		case applied != c.operatorImage():
			source = "that of most DaemonSets, " + applied + ", without the mirror of the policy"
		}
		return []string{"namespace " + c.Namespace + " has no Deployment of the operator: its image is taken to be " +
			c.operatorImage() + ", " + source + "; how it serves its metrics is taken from their Service, and its " +
			"variables and other flags count as the defaults of this plugin's release"}
	}
	var sentences []string
	const unset = " were not read: they count as unset, also those that replace images"
	for _, source := range container.EnvFrom {
		switch {
		case source.ConfigMapRef != nil:
			sentences = append(sentences, "the operator's variables of ConfigMap "+source.ConfigMapRef.Name+unset)
		case source.SecretRef != nil:
			sentences = append(sentences, "the operator's variables of Secret "+source.SecretRef.Name+unset)
		}
	}
	for _, variable := range container.Env {
		// Fields are those of the pod, such as its namespace.
		_, given := c.Given.Variables[variable.Name]
		if from := variable.ValueFrom; from != nil && from.FieldRef == nil && !given {
			sentences = append(sentences, "the operator's variable "+variable.Name+" was not read, as its Deployment has only "+
				"where it comes from: it counts as unset")
		}
	}
	return sentences
}

// frozen returns a sentence if the operator reports that it changes nothing beside NVIDIA's.
func (c *Cluster) frozen() []string {
	if c.policy == nil {
		return nil
	}
	waits := meta.FindStatusCondition(c.policy.Status.Conditions, v1.ConditionOtherOperatorRunning)
	if waits == nil || waits.Status != metav1.ConditionTrue {
		return nil
	}
	return []string{"the operator changes nothing now, and this only once NVIDIA's is gone: " + waits.Message}
}

// operatorImage returns the image that the operator uses for its helpers.
func (c *Cluster) operatorImage() string {
	container := c.operator()
	switch {
	case c.Given.Image != "":
		return c.Given.Image
	case container == nil:
		return cmp.Or(image.Unmirror(c.registry(), c.appliedHelper(), image.Own()), image.Own())
	}
	return image.Unmirror(c.mirror, cmp.Or(c.variables()(OwnVariable), container.Image), image.Own())
}

// registry is the mirror of the policy that the operator applies; empty for none.
func (c *Cluster) registry() string {
	active := c.active()
	if active == nil {
		return ""
	}
	return effective.Of(active.Spec).Global.Registry
}

// appliedHelper returns the image of helpers that most DaemonSets were applied with, as it is behind the mirror of the
// policy; empty if there is none.
func (c *Cluster) appliedHelper() string {
	count, most := map[string]int{}, ""
	for _, ds := range inNamespace[*appsv1.DaemonSet](c) {
		if found := ds.Annotations[labels.HelperImage]; found != "" && labels.IsApplied(ds) {
			count[found]++
		}
	}
	for _, found := range slices.Sorted(maps.Keys(count)) {
		if count[found] > count[most] {
			most = found
		}
	}
	return most
}

// metricsEndpoint returns how the operator serves its metrics, by its flags, or else by the Service that it has
// applied.
func (c *Cluster) metricsEndpoint() operand.MetricsEndpoint {
	endpoint, container := operand.MetricsEndpoint{}, c.operator()
	if container == nil {
		for _, service := range inNamespace[*corev1.Service](c) {
			endpoint.Plain = endpoint.Plain || operatormetrics.IsPlain(service)
		}
		return endpoint
	}
	for _, argument := range container.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		switch name {
		case "metrics-secure":
			endpoint.Plain = value == labels.False
		case "metrics-cert-dir":
			endpoint.Certified = value != ""
		case "metrics-ca-secret":
			endpoint.CASecret = value
		}
	}
	return endpoint
}
