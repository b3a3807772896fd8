package preview

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
)

// ContentsOf returns the contents of objects that a policy may refer to. Objects of other kinds, and of another
// namespace than that of the operator, are left out; without a namespace they count as in that one.
func ContentsOf(namespace string, objects []manifest.Object) map[operand.Reference]operand.Content {
	known := map[operand.Reference]operand.Content{}
	for _, object := range objects {
		if in := object.GetNamespace(); in != "" && in != namespace {
			continue
		}
		switch object := object.(type) {
		case *corev1.ConfigMap:
			known[operand.Reference{Kind: operand.ConfigMap, Name: object.Name}] = observe.ConfigMapContent(object)
		case *corev1.Secret:
			known[operand.Reference{Kind: operand.Secret, Name: object.Name}] = observe.SecretContent(object)
		case *schedulingv1.PriorityClass:
			known[operand.Reference{Kind: operand.PriorityClass, Name: object.Name}] = operand.Content{}
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			known[operand.Reference{Kind: operand.ValidatingAdmissionPolicyBinding, Name: object.Name}] = operand.Content{}
		}
	}
	return known
}

// Assumed returns the contents that were not read, and so count as existing.
func Assumed(contents map[operand.Reference]operand.Content) []operand.Reference {
	var assumed []operand.Reference
	for reference, content := range contents {
		if content.Assumed {
			assumed = append(assumed, reference)
		}
	}
	slices.SortFunc(assumed, func(a, b operand.Reference) int { return strings.Compare(a.String(), b.String()) })
	return assumed
}

// Unread returns a sentence for each object that was not read, with the operands whose objects may differ.
func Unread(catalogue operand.Catalogue, in operand.Input) []string {
	var sentences []string
	for _, reference := range Assumed(in.Contents) {
		of := usersOf(catalogue, in, reference)
		sentence := fmt.Sprintf("%s was not read: it counts as existing; without it, the objects of %s would not be applied",
			reference, of)
		if reference.Kind == operand.ConfigMap || reference.Kind == operand.Secret {
			sentence = fmt.Sprintf("%s was not read: it counts as existing, and the objects of %s lack what follows from its "+
				"content, such as mounts of its keys and digests; add it for an exact result", reference, of)
		}
		sentences = append(sentences, sentence)
	}
	return sentences
}

// usersOf names the operands that use an object. All that have pods do so if spec.daemonsets refers to it.
func usersOf(catalogue operand.Catalogue, in operand.Input, reference operand.Reference) string {
	found := catalogue.UsersOf(in, reference)
	others := slices.ContainsFunc(catalogue, func(o operand.Operand) bool {
		return o.Placement != nil && !slices.Contains(found, o.Name)
	})
	if !others {
		return "all operands with pods"
	}
	users := make([]string, 0, len(found))
	for _, user := range found {
		users = append(users, string(user))
	}
	return strings.Join(users, ", ")
}

// AboutDrivers returns a sentence for each field without effect of the NVIDIADriver objects of an edit, or about all of
// them if they have none.
func AboutDrivers(drivers []v1alpha1.NVIDIADriver, in operand.Input) []string {
	if len(drivers) > 0 && !in.UsesNVIDIADrivers() {
		return []string{"the NVIDIADrivers would have no effect: spec.driver.useNvidiaDriverCRD is not true"}
	}
	var sentences []string
	for _, driver := range drivers {
		for _, note := range nvidiadriver.Notes(driver) {
			sentences = append(sentences, fmt.Sprintf("NVIDIADriver %s: %s", driver.Name, note))
		}
	}
	return sentences
}

// contents returns the content of the objects that the policy refers to, with more objects than those of the cluster.
// Those that were not read count as existing.
func (c *Cluster) contents(
	catalogue operand.Catalogue, in operand.Input, more []manifest.Object,
) map[operand.Reference]operand.Content {
	contents := catalogue.Assume(in, ContentsOf(c.Namespace, slices.Concat(c.Objects, more)))
	for _, reference := range Assumed(contents) {
		if c.Read[string(reference.Kind)] {
			delete(contents, reference)
		}
	}
	return contents
}
