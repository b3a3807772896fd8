package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
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
		for _, one := range values(document) {
			content, err := yaml.YAMLToJSON(one)
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", len(found)+1, err)
			}
			if !bytes.Equal(content, []byte("null")) {
				found = append(found, one)
			}
		}
	}
}

// values returns the values of a document of JSON, which may follow each other as kubectl reads them, or the document
// itself if it is YAML.
func values(document []byte) [][]byte {
	var found [][]byte
	for decoder := json.NewDecoder(bytes.NewReader(document)); ; {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			return [][]byte{document}
		}
		found = append(found, value)
	}
}

// withoutLists replaces each list by its items, also of lists in lists.
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
		items := make([][]byte, 0, len(content.Items))
		for _, item := range content.Items {
			items = append(items, item.Raw)
		}
		nested, err := withoutLists(items)
		if err != nil {
			return nil, err
		}
		found = append(found, nested...)
	}
	return found, nil
}

func isList(kind metav1.TypeMeta) bool {
	return kind.APIVersion == "v1" && kind.Kind == "List" ||
		kind.APIVersion == v1.GroupVersion.String() && kind.Kind == v1.ClusterPolicyKind.Kind+"List" ||
		kind.APIVersion == v1alpha1.GroupVersion.String() && kind.Kind == v1alpha1.NVIDIADriverKind.Kind+"List"
}
