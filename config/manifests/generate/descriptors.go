package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// descriptor describes a field of a kind to consoles, which show its name, its description and a widget for it.
type descriptor struct {
	Path         string   `json:"path"`
	DisplayName  string   `json:"displayName"`
	Description  string   `json:"description"`
	XDescriptors []string `json:"x-descriptors,omitempty"`
}

// The identifiers of widgets in OpenShift's console.
const (
	kubernetesWidget = "urn:alm:descriptor:io.kubernetes."
	consoleWidget    = "urn:alm:descriptor:com.tectonic.ui:"
	hiddenWidget     = consoleWidget + "hidden"
	groupWidget      = consoleWidget + "fieldGroup:"
	selectWidget     = consoleWidget + "select:"
	textWidget       = "urn:alm:descriptor:text"
)

// maxDepth is how deep the form goes: to driver.upgradePolicy.autoUpgrade. Deeper fields are edited as YAML.
const maxDepth = 3

// form collects the descriptors of a block and those within it.
type form struct {
	// widget returns how a field is edited or shown; empty if a console shows it well without.
	widget func(name string, schema apiextensionsv1.JSONSchemaProps) string
	// sections: blocks have descriptors of their own, and those of their fields name them.
	sections bool
	list     []descriptor
}

// types are those of the spec and the status of each kind.
var types = map[string]struct{ spec, status reflect.Type }{
	v1.ClusterPolicyKind.Kind: {reflect.TypeFor[v1.ClusterPolicySpec](), reflect.TypeFor[v1.ClusterPolicyStatus]()},
	v1alpha1.NVIDIADriverKind.Kind: {
		reflect.TypeFor[v1alpha1.NVIDIADriverSpec](), reflect.TypeFor[v1alpha1.NVIDIADriverStatus](),
	},
}

// specDescriptors describes all blocks of the spec of a kind, and the fields in them that have a widget.
func specDescriptors(kind string, schema apiextensionsv1.JSONSchemaProps) ([]descriptor, error) {
	f := form{widget: specWidget, sections: true}
	err := f.walk(types[kind].spec, schema.Properties["spec"], nil)
	return f.list, err
}

// statusDescriptors describes the fields of the status other than lists, of which consoles show the conditions alone.
func statusDescriptors(kind string, schema apiextensionsv1.JSONSchemaProps) ([]descriptor, error) {
	f := form{widget: statusWidget}
	err := f.walk(types[kind].status, schema.Properties["status"], nil)
	return f.list, err
}

// walk adds the fields of a struct, whose names in Go have the initialisms that those in JSON lose.
func (f *form) walk(t reflect.Type, schema apiextensionsv1.JSONSchemaProps, above []string) error {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			if err := f.walk(field.Type, schema, above); err != nil {
				return err
			}
			continue
		}
		property, found := schema.Properties[name]
		if !found {
			return fmt.Errorf("the CustomResourceDefinition does not have the field %s of %s: run make manifests", name, t)
		}
		if err := f.field(field, property, append(above[:len(above):len(above)], name)); err != nil {
			return err
		}
	}
	return nil
}

func (f *form) field(field reflect.StructField, schema apiextensionsv1.JSONSchemaProps, path []string) error {
	widget, isBlock := f.widget(path[len(path)-1], schema), len(schema.Properties) > 0
	// The fields of Kubernetes' own types have no description.
	if schema.Description != "" && (widget != "" || f.sections && (isBlock || len(path) == 1)) {
		f.add(field, schema, path, widget)
	}
	if t := structOf(field.Type); t != nil && isBlock && widget == "" && len(path) < maxDepth {
		return f.walk(t, schema, path)
	}
	return nil
}

func (f *form) add(
	field reflect.StructField, schema apiextensionsv1.JSONSchemaProps, path []string, widget string,
) {
	d := descriptor{
		Path: strings.Join(path, "."), DisplayName: displayName(field.Name), Description: schema.Description,
	}
	if widget != "" {
		d.XDescriptors = options(widget, schema)
	}
	if !f.sections && len(path) > 1 {
		// The status has no sections.
		d.DisplayName = displayName(strings.ToUpper(path[0][:1])+path[0][1:]) + ": " + strings.ToLower(d.DisplayName)
	}
	if f.sections && len(path) > 1 && widget != hiddenWidget {
		d.XDescriptors = append(d.XDescriptors, groupWidget+path[0])
	}
	f.list = append(f.list, d)
}

// structOf returns the struct that a field holds; nil for lists, maps and scalars.
func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// specWidget returns the widget of a field of the spec; empty for blocks, lists and maps, which have none.
func specWidget(name string, schema apiextensionsv1.JSONSchemaProps) string {
	switch {
	case strings.Contains(schema.Description, "deprecated"):
		return hiddenWidget
	case name == "imagePullPolicy" || name == "pullPolicy":
		return consoleWidget + "imagePullPolicy"
	case name == "resources" && schema.Type == "object":
		return consoleWidget + "resourceRequirements"
	case len(schema.Enum) > 0:
		return selectWidget
	case schema.XIntOrString || schema.Type == "string":
		return consoleWidget + "text"
	case schema.Type == "boolean":
		return consoleWidget + "booleanSwitch"
	case schema.Type == "integer":
		return consoleWidget + "number"
	}
	return ""
}

// statusWidget returns how a field of the status is shown; empty for those that are not.
func statusWidget(name string, schema apiextensionsv1.JSONSchemaProps) string {
	switch {
	case name == "state":
		return kubernetesWidget + "phase"
	case name == "conditions":
		return kubernetesWidget + "conditions"
	case schema.Type == "string" || schema.Type == "integer":
		return textWidget
	}
	return ""
}

// options returns one identifier for each value that a list offers, and the widget itself for any other.
func options(widget string, schema apiextensionsv1.JSONSchemaProps) []string {
	if widget != selectWidget {
		return []string{widget}
	}
	var all []string
	for _, raw := range schema.Enum {
		value := ""
		if json.Unmarshal(raw.Raw, &value) == nil && value != "" {
			all = append(all, widget+value)
		}
	}
	return all
}

var (
	endOfWord       = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	endOfInitialism = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
	// properNames are spelled as their projects do.
	properNames = strings.NewReplacer("GDR Copy", "GDRCopy", "Daemon Sets", "DaemonSets", "Config Map", "ConfigMap",
		"Service Monitor", "ServiceMonitor", "VGPU", "vGPU", "Nvidia", "NVIDIA")
	capitalised = regexp.MustCompile(`^[A-Z][a-z]+$`)
)

// displayName returns the name of a field in Go as words: DCGMExporter is DCGM exporter.
func displayName(name string) string {
	spaced := endOfInitialism.ReplaceAllString(endOfWord.ReplaceAllString(name, "$1 $2"), "$1 $2")
	words := strings.Fields(properNames.Replace(spaced))
	for i, word := range words {
		if i > 0 && capitalised.MatchString(word) {
			words[i] = strings.ToLower(word)
		}
	}
	return strings.Join(words, " ")
}
