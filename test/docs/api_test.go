package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// fieldPath is a path of a field of the API; * stands for any name. What a hyphen, a slash or a dot precedes is part of
// another name, such as that of a file, or of a field of another kind.
var fieldPath = regexp.MustCompile(`(?:^|[^\w/.-])\.?((?:spec|status)(?:\.(?:[a-z]\w*|\*)(?:\[[^\]]*\])?)+)`)

// foreignFields are fields of other kinds, and what looks like one.
var foreignFields = map[string]string{
	"spec.containers[*]":               "of a Pod",
	"spec.containers[*].name":          "of a Pod",
	"spec.initContainers[*].name":      "of a Pod",
	"spec.nodeName":                    "of a Pod",
	"spec.template.spec.startupTaints": "of a NodePool of Karpenter",
	"spec.template.spec.containers[nvidia-device-plugin].env[FAIL_ON_INIT_ERROR].value": "of a DaemonSet",
	"spec.template.metadata.annotations":                                                "of a DaemonSet",
	"spec.template.spec.runtimeClassName":                                               "of a DaemonSet",
	"spec.unschedulable":                                                                "of a Node",
	"status.allocatable":                                                                "of a Node",
	"status.nodeInfo.containerRuntimeVersion":                                           "of a Node",
	"status.html": "a file",
}

// fieldsExist checks paths of fields with the schema.
func fieldsExist(schema map[string]any) check {
	return func(s snippet) (problems []string) {
		for _, found := range fieldPath.FindAllStringSubmatch(s.text, -1) {
			if _, foreign := foreignFields[found[1]]; !foreign && !hasField(schema, strings.Split(found[1], ".")) {
				problems = append(problems, "no field "+found[1])
			}
		}
		return problems
	}
}

func hasField(schema map[string]any, path []string) bool {
	for schema["items"] != nil {
		schema, _ = schema["items"].(map[string]any)
	}
	if len(path) == 0 || schema["additionalProperties"] != nil {
		return true
	}
	inner, _ := schema["properties"].(map[string]any)
	name, _, _ := strings.Cut(path[0], "[")
	for candidate, below := range inner {
		named := name == "*" || name == candidate
		if schema, isMap := below.(map[string]any); isMap && named && hasField(schema, path[1:]) {
			return true
		}
	}
	return false
}

// TestFieldsExist checks each field of the API that the docs name with its path.
func TestFieldsExist(t *testing.T) {
	g := NewWithT(t)
	schema, err := crd.OfClusterPolicy().Own()
	g.Expect(err).NotTo(HaveOccurred())
	exist := fieldsExist(schema)
	g.Expect(wrong(skip(pages(t), old), exist)).To(BeEmpty())
	g.Expect(wrong(seeded("`spec.driver.enabled`, `spec.*.env`, `spec.driver.enable: true`, `status.nodes[0].nme`, "+
		"`a.spec.x`, `spec.daemonsets.labels.x`"), exist)).
		To(Equal([]string{"x:1: no field spec.driver.enable", "x:1: no field status.nodes[0].nme"}))
}

// foreignReasons are those of Kubernetes that the operator passes on, and those of NVIDIA's operator.
var foreignReasons = map[string]string{
	"CrashLoopBackOff":           "of the kubelet",
	"CreateContainerConfigError": "of the kubelet",
	"CreateContainerError":       "of the kubelet",
	"ErrImagePull":               "of the kubelet",
	"Error":                      "of NVIDIA's operator",
	"ImagePullBackOff":           "of the kubelet",
	"Ready":                      "of NVIDIA's operator",
	"Unschedulable":              "of the scheduler",
}

var (
	reasonName     = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	reasonConstant = regexp.MustCompile(`(?m)^\s*Reason\w+\s*= (?:"(\w+)"|(Condition\w+))|^const Reason\w+ = "(\w+)"`)
	conditionType  = regexp.MustCompile(`(?m)^\s*(Condition\w+)\s*= "(\w+)"`)
	precedes       = regexp.MustCompile("(?i)\\breasons?(?: (?:is|are|of \\w+ is))? \\(?(?:`[^`]+`(?:, | and | or ))*$")
	inText         = regexp.MustCompile(`(?i)\breason["']?[:=] ?["']?([A-Z]\w+)`)
)

// apiReasons are the reasons that api/v1 declares.
func apiReasons(t *testing.T) map[string]bool {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(repo, "api/v1/*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	text := ""
	for _, file := range files {
		text += read(t, strings.TrimPrefix(file, repo+"/"))
	}
	types, names := map[string]string{}, map[string]bool{}
	for _, found := range conditionType.FindAllStringSubmatch(text, -1) {
		types[found[1]] = found[2]
	}
	for _, found := range reasonConstant.FindAllStringSubmatch(text, -1) {
		names[found[1]+types[found[2]]+found[3]] = true
	}
	g.Expect(len(names)).To(BeNumerically(">", 30), "reasons; the search has lost its way")
	return names
}

// reasonsExist checks reasons: names after the word "reason", in the first column of a table of reasons, and in
// examples such as reason=Name.
func reasonsExist(names map[string]bool) check {
	return func(s snippet) (problems []string) {
		var found []string
		isCell := s.column == 0 && strings.HasPrefix(s.table, "reason")
		if reasonName.MatchString(s.text) && (isCell || precedes.MatchString(s.before)) {
			found = append(found, s.text)
		}
		for _, example := range inText.FindAllStringSubmatch(s.text, -1) {
			found = append(found, example[1])
		}
		for _, name := range found {
			if _, foreign := foreignReasons[name]; !foreign && !names[name] {
				problems = append(problems, "no reason "+name)
			}
		}
		return problems
	}
}

// TestReasonsExist checks each reason that the docs name, and that each has an entry in troubleshooting.md.
func TestReasonsExist(t *testing.T) {
	g := NewWithT(t)
	names := apiReasons(t)
	exist := reasonsExist(names)
	g.Expect(wrong(skip(pages(t), old), exist)).To(BeEmpty())
	g.Expect(wrong(seeded("reason `Conflict`, `Other` and the reasons `Paused`, `Pauses`\n\n"+
		"| reason | x |\n|---|---|\n| `Nothing` | `Something` |\n\n"+
		"```\nreason: Everything\n```\n"), exist)).To(Equal([]string{
		"x:1: no reason Other", "x:1: no reason Pauses", "x:5: no reason Nothing", "x:8: no reason Everything",
	}))
	entries := anchors(page{text: read(t, "docs/troubleshooting.md")})
	for name := range names {
		g.Expect(entries).To(HaveKey(strings.ToLower(name)), "an entry in docs/troubleshooting.md: run make docs")
	}
}

// TestTheCatalogueHasAllOperands looks for the rows of the generated table.
func TestTheCatalogueHasAllOperands(t *testing.T) {
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	text := read(t, "docs/architecture/operands.md")
	for _, op := range catalogue {
		g.Expect(text).To(ContainSubstring(fmt.Sprintf("\n| `%s` | ", op.Name)), "run make docs")
	}
}
