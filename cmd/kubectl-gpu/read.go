package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// policyFile has the objects of a file with a policy.
type policyFile struct {
	Policy *v1.ClusterPolicy
	// Named and Drivers are the objects beside the policy that it may name, and the NVIDIADrivers that it may use.
	Named   []manifest.Object
	Drivers []v1alpha1.NVIDIADriver
	// documents are all of the file.
	documents [][]byte
}

// edit returns the edit that applies the objects of the file.
func (f *policyFile) edit() preview.Edit {
	return preview.Edit{Policy: f.Policy, Named: f.Named, Drivers: f.Drivers}
}

// readPolicy reads a file with one ClusterPolicy, which may also be in a List, as kubectl get prints it. It also reads
// the objects that a policy may name or use.
func readPolicy(file string, in io.Reader) (*policyFile, error) {
	all, err := documents(file, in)
	if err != nil {
		return nil, err
	}
	return decodeFile(all)
}

func decodeFile(all [][]byte) (*policyFile, error) {
	all, err := withoutLists(all)
	if err != nil {
		return nil, err
	}
	found := &policyFile{documents: slices.Clone(all)}
	if len(all) > 1 {
		for _, document := range all {
			if err := found.add(document); err != nil {
				return nil, err
			}
		}
		all = slices.DeleteFunc(all, isAnotherKind)
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("found %d ClusterPolicies: give exactly one", len(all))
	}
	found.Policy, err = decodeStrictly[*v1.ClusterPolicy](all[0], v1.ClusterPolicyKind)
	return found, err
}

// add takes up a document, unless it is of a kind that no policy names or uses.
func (f *policyFile) add(document []byte) error {
	kind := kindOf(document)
	if kind == v1alpha1.NVIDIADriverKind {
		return f.addDriver(document)
	}
	object := newNamed(kind)
	if object == nil {
		return nil
	}
	if err := decodeNamed(document, object); err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, nameOf(document), err)
	}
	if secret, isSecret := object.(*corev1.Secret); isSecret {
		// As the API server stores it.
		for key, value := range secret.StringData {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[key] = []byte(value)
		}
	}
	f.Named = append(f.Named, object)
	return nil
}

// decodeNamed decodes an object of a kind of Kubernetes as the API server does: it refuses an unknown field, and a
// number where a text is due, which the YAML parser alone would convert.
func decodeNamed(document []byte, object manifest.Object) error {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(text, object)
	return errors.Join(append(unknown, err)...)
}

// newNamed returns an empty object of a kind that a policy may name; nil for another kind.
func newNamed(kind schema.GroupVersionKind) manifest.Object {
	switch kind {
	case corev1.SchemeGroupVersion.WithKind("ConfigMap"):
		return &corev1.ConfigMap{}
	case corev1.SchemeGroupVersion.WithKind("Secret"):
		return &corev1.Secret{}
	case schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"):
		return &schedulingv1.PriorityClass{}
	case admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"):
		return &admissionv1.ValidatingAdmissionPolicyBinding{}
	}
	return nil
}

// addDriver takes up an NVIDIADriver.
func (f *policyFile) addDriver(document []byte) error {
	driver, err := decodeStrictly[*v1alpha1.NVIDIADriver](document, v1alpha1.NVIDIADriverKind)
	if err != nil {
		return fmt.Errorf("NVIDIADriver %s: %w", nameOf(document), err)
	}
	same := func(other v1alpha1.NVIDIADriver) bool { return other.Name == driver.Name }
	if driver.Name == "" || slices.ContainsFunc(f.Drivers, same) {
		return fmt.Errorf("there are two NVIDIADrivers %q, or it has no metadata.name: change one name", driver.Name)
	}
	f.Drivers = append(f.Drivers, *driver)
	return nil
}

// decodeStrictly decodes an object of a kind, whose type is T. An unknown field is an error that names it, as the API
// server would drop it.
func decodeStrictly[T runtime.Object](document []byte, want schema.GroupVersionKind) (decoded T, err error) {
	written, err := asWritten(document)
	if err != nil {
		return decoded, err
	}
	text, err := yaml.YAMLToJSON(written)
	if err == nil {
		err = customKinds().Check(text)
	}
	if err != nil {
		return decoded, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return decoded, err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	object, kind, err := decoder.Decode(written, nil, nil)
	if err != nil && !runtime.IsNotRegisteredError(err) {
		return decoded, err
	}
	typed, is := object.(T)
	if !is {
		return decoded, fmt.Errorf("found a %s of %s: give a %s of %s", kind.Kind, kind.GroupVersion(), want.Kind,
			want.GroupVersion())
	}
	return typed, nil
}

// asWritten drops from an object what its author does not write: the status, which another release or NVIDIA's operator
// may have written, and the managed fields.
func asWritten(document []byte) ([]byte, error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	if metadata, isMap := object["metadata"].(map[string]any); isMap {
		delete(metadata, "managedFields")
	}
	return yaml.Marshal(object)
}

// isAnotherKind reports whether a document is not a ClusterPolicy of any version.
func isAnotherKind(document []byte) bool {
	return kindOf(document).GroupKind() != v1.ClusterPolicyKind.GroupKind()
}

// kindOf returns the kind of a document; empty if it has none.
func kindOf(document []byte) schema.GroupVersionKind {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return schema.GroupVersionKind{}
	}
	return kind.GroupVersionKind()
}

// nameOf returns the name of the object in a document; empty if it has none.
func nameOf(document []byte) string {
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(document, &object); err != nil {
		return ""
	}
	return object.Name
}

// readDriverToolkit reads the images of OpenShift's driver toolkit from its ImageStream; none without a file.
func readDriverToolkit(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	stream := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &stream.Object); err != nil {
		return nil, err
	}
	if kind := stream.GetKind(); kind != "ImageStream" {
		return nil, fmt.Errorf("found a %q: give the ImageStream %s", kind, labels.DriverToolkitStream)
	}
	return observe.DriverToolkitImages(stream), nil
}

// readOpenShift reads what the configuration of OpenShift has for drivers; nothing without a file.
func readOpenShift(file string) (found operand.OpenShiftCluster, err error) {
	if file == "" {
		return found, nil
	}
	all, err := documents(file, nil)
	if err != nil {
		return found, err
	}
	if all, err = withoutLists(all); err != nil {
		return found, err
	}
	for _, document := range all {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return found, err
		}
		if !isOpenShiftConfig(object.GroupVersionKind()) {
			return found, fmt.Errorf("found a %q: give the Proxy %s and the ClusterVersion %s of %s", object.GetKind(),
				labels.ProxyName, labels.ClusterVersionName, labels.OpenShiftConfigGroup)
		}
		observe.AddOpenShift(&found, object)
	}
	return found, nil
}

// readNodes reads Nodes, one by one or in lists. Unknown fields are ignored: a newer release of Kubernetes may have
// written them.
func readNodes(file string, in io.Reader) ([]corev1.Node, error) {
	all, err := documents(file, in)
	if err != nil {
		return nil, err
	}
	var nodes []corev1.Node
	for _, document := range all {
		more, err := decodeNodes(document)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, more...)
	}
	seen := map[string]bool{}
	for i := range nodes {
		switch name := nodes[i].Name; {
		case name == "":
			return nil, errors.New("a Node has no metadata.name: set it")
		case seen[name]:
			return nil, fmt.Errorf("node %s is listed twice: remove one", name)
		default:
			seen[name] = true
		}
	}
	return nodes, nil
}

// decodeNodes reads a Node, a NodeList or a List of Nodes.
func decodeNodes(document []byte) ([]corev1.Node, error) {
	var content struct {
		APIVersion string                 `json:"apiVersion"`
		Kind       string                 `json:"kind"`
		Items      []runtime.RawExtension `json:"items"`
	}
	if err := yaml.Unmarshal(document, &content); err != nil {
		return nil, err
	}
	switch {
	case content.APIVersion == "v1" && content.Kind == "Node":
		node := corev1.Node{}
		if err := yaml.Unmarshal(document, &node); err != nil {
			return nil, err
		}
		return []corev1.Node{node}, nil
	case content.APIVersion == "v1" && content.Kind == "NodeList":
		list := corev1.NodeList{}
		err := yaml.Unmarshal(document, &list)
		return list.Items, err
	case content.APIVersion == "v1" && content.Kind == "List":
		var nodes []corev1.Node
		for _, item := range content.Items {
			more, err := decodeNodes(item.Raw)
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, more...)
		}
		return nodes, nil
	default:
		return nil, fmt.Errorf("found a %q of %q: give Nodes of v1, as kubectl get nodes -o yaml prints them", content.Kind,
			content.APIVersion)
	}
}
