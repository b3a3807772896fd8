package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// stdin is the file name that stands for standard input.
const stdin = "-"

// documents returns the YAML or JSON documents of a file that are not empty.
func documents(file string, in io.Reader) ([][]byte, error) {
	if file != stdin {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	var found [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(found)+1, err)
		}
		if !bytes.Equal(content, []byte("null")) {
			found = append(found, document)
		}
	}
}

// readPolicy reads the one ClusterPolicy of a file, which may also be in a List, as kubectl get prints it, and the
// ConfigMaps beside it, which the policy may name. Other objects are ignored.
func readPolicy(file string, in io.Reader) (*v1.ClusterPolicy, []corev1.ConfigMap, error) {
	all, err := documents(file, in)
	if err != nil {
		return nil, nil, err
	}
	if all, err = withoutLists(all); err != nil {
		return nil, nil, err
	}
	var configMaps []corev1.ConfigMap
	if len(all) > 1 {
		for _, document := range all {
			if kindOf(document) == corev1.SchemeGroupVersion.WithKind("ConfigMap") {
				configMap := corev1.ConfigMap{}
				if err := yaml.Unmarshal(document, &configMap); err != nil {
					return nil, nil, err
				}
				configMaps = append(configMaps, configMap)
			}
		}
		all = slices.DeleteFunc(all, isAnotherKind)
	}
	if len(all) != 1 {
		return nil, nil, fmt.Errorf("found %d ClusterPolicies: give exactly one", len(all))
	}
	policy, err := decodePolicy(all[0])
	return policy, configMaps, err
}

// decodePolicy decodes a ClusterPolicy. An unknown field is an error that names it, as the API server would drop it.
func decodePolicy(document []byte) (*v1.ClusterPolicy, error) {
	written, err := asWritten(document)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	object, kind, err := decoder.Decode(written, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil, fmt.Errorf("found a %s of %s: give a %s of %s", kind.Kind, kind.GroupVersion(), v1.ClusterPolicyKind.Kind,
			v1.GroupVersion)
	}
	if err != nil {
		return nil, err
	}
	policy, isPolicy := object.(*v1.ClusterPolicy)
	if !isPolicy {
		return nil, fmt.Errorf("found a %s: give a %s", kind.Kind, v1.ClusterPolicyKind.Kind)
	}
	return policy, nil
}

// withoutLists replaces each list by its items.
func withoutLists(all [][]byte) ([][]byte, error) {
	var found [][]byte
	for _, document := range all {
		var content struct {
			metav1.TypeMeta `json:",inline"`
			Items           []runtime.RawExtension `json:"items"`
		}
		// An error of another kind is reported where the document is decoded.
		if err := yaml.Unmarshal(document, &content); err != nil || !isList(content.TypeMeta) {
			found = append(found, document)
			continue
		}
		if _, err := yaml.YAMLToJSONStrict(document); err != nil {
			return nil, err
		}
		for _, item := range content.Items {
			found = append(found, item.Raw)
		}
	}
	return found, nil
}

func isList(kind metav1.TypeMeta) bool {
	return kind.APIVersion == "v1" && kind.Kind == "List" ||
		kind.APIVersion == v1.GroupVersion.String() && kind.Kind == v1.ClusterPolicyKind.Kind+"List"
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
