package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
)

// refusals are the objects that the API server would refuse, as kind and name, and a sentence for each reason.
type refusals struct {
	objects, sentences []string
}

// with returns an error that names why operands cannot be rendered, and what the operator or else the API server would
// refuse; nil if there is nothing.
func (r refusals) with(failed error, invalid []string) error {
	return errors.Join(failed, errInvalid(invalid, r.objects, "reasons above"))
}

// errInvalid returns an error that names what the operator would refuse, or else what the API server would; nil if
// there is neither. at is where the reasons are.
func errInvalid(invalid, refused []string, at string) error {
	switch {
	case len(invalid) > 0:
		return fmt.Errorf("the policy is invalid for %s: see the %s and change it", strings.Join(invalid, ", "), at)
	case len(refused) > 0:
		return fmt.Errorf("the API server would refuse %s: see the %s and change it", strings.Join(refused, ", "), at)
	}
	return nil
}

// errRefused returns an error if the operator would refuse a part of the policy or could not write an object, or if the
// API server would refuse one; nil if there is neither.
func errRefused(found *preview.Preview) error {
	refused := func(c preview.Change) bool { return c.Action == preview.Refuse }
	if i := slices.IndexFunc(found.Objects, refused); i >= 0 {
		c := &found.Objects[i]
		return fmt.Errorf("%s %s: the operator could not write it: %s", c.Operand, c.Name, c.Message)
	}
	return errInvalid(found.Invalid, found.Refused, "notes")
}

// refusals checks the policy and the NVIDIADrivers of a file as the API server does, except its webhooks and policies.
// It accepts what is wrong with an object of the cluster already, as the API server does: live has those objects. It is
// nil if there is no cluster: then what is wrong counts as stored in one if asStored is set.
func (f *policyFile) refusals(ctx context.Context, live *preview.Cluster, asStored bool) (refusals, error) {
	found := refusals{}
	for _, document := range f.documents {
		definition, known := definitionOf(document)
		if !known {
			continue
		}
		problems, err := problemsOf(ctx, document)
		if err != nil {
			return found, err
		}
		stored, err := storedProblems(ctx, live, document)
		if err != nil {
			return found, err
		}
		problems = slices.DeleteFunc(problems, func(problem string) bool { return slices.Contains(stored, problem) })
		if len(problems) == 0 {
			continue
		}
		name := definition.Kind.Kind + " " + nameOf(document)
		if live == nil && asStored {
			for _, problem := range problems {
				found.sentences = append(found.sentences, fmt.Sprintf("the API server would refuse a new %s, and keeps the one "+
					"that is stored with this: %s", name, problem))
			}
			continue
		}
		found.objects = append(found.objects, name)
		for _, problem := range problems {
			found.sentences = append(found.sentences, fmt.Sprintf("the API server would refuse %s: %s", name, problem))
		}
		if live == nil && isExported(document) {
			found.sentences = append(found.sentences, fmt.Sprintf("if %s is in a cluster like this, and was not edited, the "+
				"API server keeps it: add --stored", name))
		}
	}
	return found, nil
}

// isExported reports whether a document is an object of a cluster, as kubectl get prints it.
func isExported(document []byte) bool {
	var object metav1.PartialObjectMetadata
	err := yaml.Unmarshal(document, &object)
	return err == nil && object.UID != "" && object.ResourceVersion != ""
}

// problemsOf returns what the API server would refuse of an object, without its status.
func problemsOf(ctx context.Context, document []byte) ([]string, error) {
	definition, _ := definitionOf(document)
	written, err := asWritten(document)
	if err != nil {
		return nil, err
	}
	problems, _, err := checkObject(ctx, definition, written)
	sentences := make([]string, 0, len(problems))
	for _, one := range problems {
		sentences = append(sentences, one.String())
	}
	return sentences, err
}

// storedProblems returns what is wrong with the live object of a document; nothing if there is none.
func storedProblems(ctx context.Context, live *preview.Cluster, document []byte) ([]string, error) {
	if live == nil {
		return nil, nil
	}
	kind, name := kindOf(document), nameOf(document)
	for _, object := range live.Objects {
		switch object.(type) {
		case *v1.ClusterPolicy, *v1alpha1.NVIDIADriver:
		default:
			continue
		}
		if object.GetObjectKind().GroupVersionKind() != kind || object.GetName() != name {
			continue
		}
		stored, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", kind.Kind, name, err)
		}
		return problemsOf(ctx, stored)
	}
	return nil, nil
}
