package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/configfile"
	"github.com/clusterpolicy/gpu-operator/internal/policy/metricsfile"
	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

// Annotations of trimmed objects: the digest of the data, and its keys. The API server accepts no annotation that
// starts with a slash, so they also mark objects as trimmed.
const (
	contentDigest = "/digest"
	contentKeys   = "/keys"
	// contentKeyDigests are the digests of what the keys have, in their order.
	contentKeyDigests = "/key-digests"
	// contentProblems are the problems of configurations of the device plugin, by key, in JSON.
	contentProblems = "/problems"
	// contentStrategies are the MIG strategies in configurations of the device plugin, by key, in JSON.
	contentStrategies = "/strategies"
	// contentMPSLines are the lines of sharing.mps in configurations of the device plugin, by key, in JSON.
	contentMPSLines = "/mps-lines"
	// contentReplicas is how many pods share a GPU by configurations of the device plugin, by key, in JSON.
	contentReplicas = "/replicas"
	// contentLayouts are the names of MIG layouts, separated by spaces.
	contentLayouts = "/layouts"
	// contentLayoutsProblem is why MIG layouts cannot be read.
	contentLayoutsProblem = "/layouts-problem"
	// contentFileProblems are the problems of the other files of users, by key, in JSON.
	contentFileProblems = "/file-problems"
)

// ReferenceKinds returns the kinds of objects that operands may refer to.
func ReferenceKinds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{},
		&corev1.Secret{},
		&schedulingv1.PriorityClass{},
		&admissionv1.ValidatingAdmissionPolicyBinding{},
	}
}

// Contents reads the objects that the references name. Objects that do not exist are missing from the result.
func Contents(
	ctx context.Context, reader client.Reader, namespace string, references []operand.Reference,
) (map[operand.Reference]operand.Content, error) {
	contents := map[operand.Reference]operand.Content{}
	for _, reference := range references {
		key, object := client.ObjectKey{Namespace: namespace, Name: reference.Name}, client.Object(nil)
		switch reference.Kind {
		case operand.ConfigMap:
			object = &corev1.ConfigMap{}
		case operand.Secret:
			object = &corev1.Secret{}
		case operand.PriorityClass:
			object, key.Namespace = &schedulingv1.PriorityClass{}, ""
		case operand.ValidatingAdmissionPolicyBinding:
			object, key.Namespace = &admissionv1.ValidatingAdmissionPolicyBinding{}, ""
		}
		err := reader.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", reference, err)
		}
		contents[reference] = contentOf(object)
	}
	return contents, nil
}

// contentOf returns the content of a trimmed object.
func contentOf(object client.Object) operand.Content {
	annotations := object.GetAnnotations()
	content := operand.Content{
		Digest: annotations[contentDigest], Keys: strings.Fields(annotations[contentKeys]),
		Layouts: strings.Fields(annotations[contentLayouts]), LayoutsProblem: annotations[contentLayoutsProblem],
	}
	if problems := annotations[contentFileProblems]; problems != "" {
		// Written by this package.
		_ = json.Unmarshal([]byte(problems), &content.FileProblems)
	}
	for i, sum := range strings.Fields(annotations[contentKeyDigests]) {
		if content.KeyDigests == nil {
			content.KeyDigests = map[string]string{}
		}
		content.KeyDigests[content.Keys[i]] = sum
	}
	if problems := annotations[contentProblems]; problems != "" {
		// Written by this package.
		_ = json.Unmarshal([]byte(problems), &content.Problems)
	}
	if strategies := annotations[contentStrategies]; strategies != "" {
		// Written by this package.
		_ = json.Unmarshal([]byte(strategies), &content.Strategies)
	}
	if lines := annotations[contentMPSLines]; lines != "" {
		// Written by this package.
		_ = json.Unmarshal([]byte(lines), &content.MPSLines)
	}
	if replicas := annotations[contentReplicas]; replicas != "" {
		// Written by this package.
		_ = json.Unmarshal([]byte(replicas), &content.Replicas)
	}
	return content
}

// ConfigMapContent returns the content of a ConfigMap.
func ConfigMapContent(configMap *corev1.ConfigMap) operand.Content {
	return contentOf(trimConfigMap(configMap))
}

// SecretContent returns the content of a Secret.
func SecretContent(secret *corev1.Secret) operand.Content { return contentOf(trimSecret(secret)) }

// ContentChanges passes events that change the result of Contents.
func ContentChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}

// TrimReference keeps a digest and the keys of the data of an object that operands may refer to. It is idempotent,
// because the initial objects of a watch are trimmed twice.
func TrimReference(object any) (any, error) {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		return trimConfigMap(object), nil
	case *corev1.Secret:
		return trimSecret(object), nil
	case *schedulingv1.PriorityClass:
		return &schedulingv1.PriorityClass{ObjectMeta: describeContent(object.ObjectMeta, nil, false)}, nil
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: describeContent(object.ObjectMeta, nil, false)}, nil
	default:
		return object, nil
	}
}

func trimConfigMap(object *corev1.ConfigMap) *corev1.ConfigMap {
	data := map[string][]byte{}
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, object.BinaryData)
	meta := describeContent(object.ObjectMeta, data, true)
	maps.Copy(meta.Annotations, inspectPluginFiles(object.Data))
	encodeByKey(meta.Annotations, contentFileProblems, fileProblems(object.Data))
	names, problem := configfile.MIGLayoutNames(object.Data[labels.MIGLayoutsKey])
	if len(names) > 0 {
		meta.Annotations[contentLayouts] = strings.Join(names, " ")
	} else if _, exists := object.Data[labels.MIGLayoutsKey]; exists {
		meta.Annotations[contentLayoutsProblem] = problem
	}
	return &corev1.ConfigMap{ObjectMeta: meta}
}

// fileProblems returns the problems of the files of users whose format their key identifies, by key.
func fileProblems(data map[string]string) map[string][]string {
	checks := map[string]func(string) []string{
		labels.ExporterMetricsKey: metricsfile.Check,
		labels.MIGLayoutsKey:      configfile.MIGLayouts,
		labels.GPUClientsKey:      configfile.GPUClients,
	}
	for _, name := range labels.ModuleFiles() {
		checks[name] = configfile.ModuleParameters
	}
	found := map[string][]string{}
	for key, check := range checks {
		if content, exists := data[key]; exists {
			if problems := check(content); len(problems) > 0 {
				found[key] = problems
			}
		}
	}
	return found
}

// inspectPluginFiles returns annotations with the problems, the MIG strategies and the replicas of the data that are,
// or may have to be, configurations of the device plugin. Whether the device plugin reads them is decided by the spec,
// later.
func inspectPluginFiles(data map[string]string) map[string]string {
	broken, flags := map[string][]pluginfile.Problem{}, map[string]pluginfile.Strategy{}
	replicas, mps := map[string]int{}, map[string]int{}
	for key, content := range data {
		if found := pluginfile.CheckNamed([]byte(content)); len(found) > 0 {
			broken[key] = found
		}
		if !pluginfile.IsPluginFile([]byte(content)) {
			continue
		}
		if strategy := pluginfile.MIGStrategy([]byte(content)); strategy.Value != "" {
			flags[key] = strategy
		}
		if line := pluginfile.MPSLine([]byte(content)); line > 0 {
			mps[key] = line
		}
		if shared := pluginfile.Replicas([]byte(content), labels.ResourceGPU); shared > 1 {
			replicas[key] = shared
		}
	}
	found := map[string]string{}
	encodeByKey(found, contentProblems, broken)
	encodeByKey(found, contentStrategies, flags)
	encodeByKey(found, contentReplicas, replicas)
	encodeByKey(found, contentMPSLines, mps)
	return found
}

// encodeByKey adds the values as an annotation in JSON, unless there are none.
func encodeByKey[V any](annotations map[string]string, name string, byKey map[string]V) {
	if len(byKey) == 0 {
		return
	}
	// Encoding strings and numbers never fails.
	encoded, _ := json.Marshal(byKey)
	annotations[name] = string(encoded)
}

// trimSecret keeps digests of single keys of licences with a token alone: nothing depends on one key of another Secret.
func trimSecret(object *corev1.Secret) *corev1.Secret {
	_, hasToken := object.Data[labels.LicenceTokenKey]
	return &corev1.Secret{ObjectMeta: describeContent(object.ObjectMeta, object.Data, hasToken)}
}

// describeContent replaces the annotations by the digest of the data and its keys, and by the digests of what each key
// has if wanted, unless that is done already.
func describeContent(meta metav1.ObjectMeta, data map[string][]byte, eachKey bool) metav1.ObjectMeta {
	if _, trimmed := meta.Annotations[contentDigest]; trimmed {
		return meta
	}
	sum, keys := digest.New(), slices.Sorted(maps.Keys(data))
	var sums []string
	for _, key := range keys {
		fmt.Fprintf(sum, "%q %q;", key, data[key])
		if eachKey {
			sums = append(sums, digest.Of(data[key]))
		}
	}
	// Keys of ConfigMaps and Secrets have no spaces.
	described := map[string]string{contentDigest: sum.String(), contentKeys: strings.Join(keys, " ")}
	if len(sums) > 0 {
		described[contentKeyDigests] = strings.Join(sums, " ")
	}
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Annotations: described,
	}
}
