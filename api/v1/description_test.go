package v1_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// eachField visits every field of spec and status with its path, without the fields of Kubernetes' own types.
func eachField(t *testing.T, visit func(path, name string, field *apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	fields := 0
	walk("", readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for name, field := range s.Properties {
			if path == "" && name != "spec" && name != "status" {
				continue
			}
			fields++
			visit(path+"."+name, name, &field)
		}
	})
	const least = 300
	if fields < least {
		t.Errorf("visited %d fields only: the walk does not reach them", fields)
	}
}

// likeKubernetes matches the fields of blocks that almost every operand has. They mean what they mean in a Pod, and
// docs/api.md describes them.
var likeKubernetes = regexp.MustCompile(`\.(env|containerResources)\[\]\.|\.resources\.(limits|requests)$|Probe\.`)

// kubectl explain shows the description of a field. A longer text would make the definition too large for kubectl
// apply.
func TestEveryFieldIsDescribedInSentences(t *testing.T) {
	const most = 160
	eachField(t, func(path, _ string, field *apiextensionsv1.JSONSchemaProps) {
		description := field.Description
		if likeKubernetes.MatchString(path) {
			return
		}
		if !strings.HasSuffix(description, ".") {
			t.Errorf("%s: the description %q does not end with a full stop: "+
				"write a comment above the field in Go, and run make manifests", path, description)
		}
		if len(description) > most || strings.Contains(description, "\n") {
			t.Errorf("%s: the description %q has more than %d bytes, or more than one line: "+
				"end its first paragraph with a blank line in Go", path, description, most)
		}
	})
}

// The tool that writes the reference omits what it cannot follow, without an error.
func TestTheReferenceHasEveryField(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			rows[strings.TrimSpace(cells[1])] = true
		}
	}
	eachField(t, func(path, name string, _ *apiextensionsv1.JSONSchemaProps) {
		if !rows["`"+name+"`"] {
			t.Errorf("docs/api.md has no %s: run make docs", path)
		}
	})
}

// Each link within the reference leads to a section.
func TestTheLinksOfTheReferenceLeadSomewhere(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	sections, links := map[string]bool{}, []string{}
	for line := range strings.Lines(string(text)) {
		if title, isTitle := strings.CutPrefix(line, "## "); isTitle {
			sections[strings.ToLower(strings.TrimSpace(title))] = true
		}
		for _, after := range strings.Split(line, "](#")[1:] {
			link, _, _ := strings.Cut(after, ")")
			links = append(links, link)
		}
	}
	const least = 100
	if len(links) < least {
		t.Errorf("found %d links only: the search does not find them", len(links))
	}
	for _, link := range links {
		if !sections[link] {
			t.Errorf("docs/api.md has a link to #%s, but no such section", link)
		}
	}
}
