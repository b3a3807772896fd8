package ruleset

import (
	"bytes"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// Group is a group of rules.
type Group struct {
	Name     string
	Interval string `yaml:",omitempty"`
	Rules    []Rule
}

// Rule is an alert or a recorded series, with the names of a file of rules.
type Rule struct {
	Alert       string            `yaml:",omitempty"`
	Record      string            `yaml:",omitempty"`
	Expr        string            `yaml:",omitempty"`
	For         string            `yaml:",omitempty"`
	Labels      map[string]string `yaml:",omitempty"`
	Annotations map[string]string `yaml:",omitempty"`
}

// Read returns the groups of the PrometheusRules in files. A file without any is an error.
func Read(files ...string) ([]Group, error) {
	var found []Group
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		before := len(found)
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			one := struct {
				Kind string
				Spec struct{ Groups []Group }
			}{}
			if err := yaml.Unmarshal(document, &one); err != nil {
				return nil, fmt.Errorf("decoding %s: %w", file, err)
			}
			if one.Kind == "PrometheusRule" {
				found = append(found, one.Spec.Groups...)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("%s has no PrometheusRule", file)
		}
	}
	return found, nil
}
