package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	// namespace is the one that config/ is written for.
	namespace = "gpu-operator"
	// Placeholders in the objects for what Helm decides. The prefix sorts them after the names of fields, so that a
	// list's element never begins with one.
	tokenPrefix    = "zHELM-"
	tokenNamespace = tokenPrefix + "NAMESPACE"
	tokenLabels    = tokenPrefix + "LABELS"
	tokenName      = tokenPrefix + "NAME"

	nameLabel = "app.kubernetes.io/name"
	// namespaceLabel selects a namespace by its name.
	namespaceLabel = "kubernetes.io/metadata.name"
)

const fileDeployment = "deployment.yaml"

// object is an object of config/, as decoded YAML.
type object = map[string]any

// openShiftFiles are the manifests below config/ that the value platform.openshift adds.
var openShiftFiles = []string{
	"openshift/scc.yaml", "openshift/trusted_ca.yaml", "openshift/operands.yaml", "openshift-monitoring/rbac.yaml",
}

// gpuPodFiles are the manifests below config/ that the value gpuPodPolicy adds, with the binding of one mode.
var gpuPodFiles = []string{"gpu-pods/base/policy.yaml", "gpu-pods/warn/binding.yaml"}

// templates returns the templates made from the objects of config/default, openShiftFiles and gpuPodFiles, by file
// name.
func templates(root string, objects []object) (map[string][]byte, error) {
	var err error
	files, written := map[string]*bytes.Buffer{}, map[string][]byte{}
	for _, o := range objects {
		name := fileOf(o)
		if name == fileDeployment {
			if written["_defaults.tpl"], err = sharedDefaults(o); err != nil {
				return nil, err
			}
		}
		if name == "" {
			continue
		}
		if files[name] == nil {
			files[name] = bytes.NewBufferString(fmt.Sprintf(header, "config/default"))
		}
		text, err := template(o)
		if err != nil {
			return nil, err
		}
		files[name].WriteString("---\n" + text)
	}
	for name, text := range files {
		written[name] = text.Bytes()
	}
	if written["openshift.yaml"], err = openShift(root); err != nil {
		return nil, err
	}
	written["gpu-pods.yaml"], err = gpuPods(root)
	return written, err
}

// fileOf returns the template that an object belongs in; empty for what Helm installs itself: the namespace, and the
// definition, which is in crds/.
func fileOf(o object) string {
	name, _ := in(o, "metadata")["name"].(string)
	kind, _ := o["kind"].(string)
	switch {
	case kind == "CustomResourceDefinition", kind == "Namespace":
		return ""
	case strings.HasPrefix(kind, "ValidatingAdmissionPolicy"):
		return "admission.yaml"
	case kind == "Deployment":
		return fileDeployment
	case name == "gpu-operator":
		return "operator.yaml"
	}
	return "operands.yaml"
}

// openShift returns openShiftFiles as a template, rendered if the value platform.openshift is set. Helm does not
// install the namespace: the notes have the command that gives it the label of config/openshift-monitoring.
func openShift(root string) ([]byte, error) {
	return guarded(root, "config/openshift and config/openshift-monitoring",
		"if (.Values.platform | default dict).openshift", openShiftFiles)
}

// gpuPods returns gpuPodFiles as a template, rendered if the value gpuPodPolicy has a mode, which replaces that of the
// binding.
func gpuPods(root string) ([]byte, error) {
	return guarded(root, "config/gpu-pods", "if .Values.gpuPodPolicy", gpuPodFiles)
}

// guarded returns manifests below config/ as a template that is rendered under a condition.
func guarded(root, from, condition string, files []string) ([]byte, error) {
	text := fmt.Sprintf(header, from) + "{{- " + condition + " }}\n"
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(root, "config", name))
		if err != nil {
			return nil, fmt.Errorf("reading the optional manifests: %w", err)
		}
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			o := object{}
			if err := utilyaml.Unmarshal(document, &o); err != nil {
				return nil, fmt.Errorf("decoding config/%s: %w", name, err)
			}
			one, err := template(o)
			if err != nil {
				return nil, err
			}
			text += "---\n" + one
		}
	}
	return []byte(text + "{{- end }}\n"), nil
}

// template returns an object as the text of a template.
func template(o object) (string, error) {
	inNamespace(o)
	labels := in(o, "metadata", "labels")
	labels[tokenLabels] = ""
	named(labels)
	snippets := map[string]string{}
	if o["kind"] == "Deployment" {
		if err := openSettings(o, snippets); err != nil {
			return "", err
		}
	}
	openMode(o, snippets)
	if err := openRules(o, snippets); err != nil {
		return "", err
	}
	if err := openTaints(o, snippets); err != nil {
		return "", err
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encoding %v %v: %w", o["kind"], in(o, "metadata")["name"], err)
	}
	return fill(string(text), snippets), nil
}

// named lets a value replace the name in labels. No selector uses it.
func named(labels object) {
	if _, there := labels[nameLabel]; there {
		labels[nameLabel] = tokenName
	}
}

// inNamespace replaces every name of the operator's namespace by its placeholder.
func inNamespace(value any) {
	switch value := value.(type) {
	case object:
		for key, inner := range value {
			if inner == namespace && (key == "namespace" || key == namespaceLabel) {
				value[key] = tokenNamespace
			}
			inNamespace(inner)
		}
		if names, isList := value["values"].([]any); isList && value["key"] == namespaceLabel {
			for i := range names {
				if names[i] == namespace {
					names[i] = tokenNamespace
				}
			}
		}
	case []any:
		for _, inner := range value {
			inNamespace(inner)
		}
	}
}

var labelsLine = regexp.MustCompile(`(?m)^( *)` + tokenLabels + `: ""$`)

// fill replaces the placeholders by template actions, and escapes braces of the objects.
func fill(text string, snippets map[string]string) string {
	text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`)
	text = strings.ReplaceAll(text, tokenNamespace, "{{ .Release.Namespace | quote }}")
	text = strings.ReplaceAll(text, tokenName, `{{ include "gpu-operator.name" $ }}`)
	text = labelsLine.ReplaceAllStringFunc(text, func(line string) string {
		indent := strings.Index(line, tokenLabels)
		return fmt.Sprintf(`%s{{- include "gpu-operator.labels" $ | nindent %d }}`, line[:indent], indent)
	})
	for token, snippet := range snippets {
		text = regexp.MustCompile(`(?m)^( *)(.*)`+regexp.QuoteMeta(token)+`(: "")?$`).ReplaceAllStringFunc(text,
			func(line string) string {
				indent := len(line) - len(strings.TrimLeft(line, " "))
				before, _, _ := strings.Cut(line, token)
				if strings.HasPrefix(snippet, "{{- ") {
					before = line[:indent]
				}
				return before + strings.ReplaceAll(snippet, "INDENT", fmt.Sprint(indent))
			})
	}
	return text
}

// in returns the object at a path of keys, created if it is missing.
func in(o object, path ...string) object {
	for _, key := range path {
		inner, ok := o[key].(object)
		if !ok {
			inner = object{}
			o[key] = inner
		}
		o = inner
	}
	return o
}
