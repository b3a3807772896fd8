package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// alertTable is a table of the alerts about GPUs, in the order of their file.
func alertTable(repo string) (string, error) {
	const file = "config/monitoring/alerts.yaml"
	data, err := os.ReadFile(filepath.Join(repo, file))
	if err != nil {
		return "", fmt.Errorf("reading the alerts: %w", err)
	}
	rules := &monitoringv1.PrometheusRule{}
	if err := yaml.UnmarshalStrict(data, rules); err != nil {
		return "", fmt.Errorf("decoding %s: %w", file, err)
	}
	text := &strings.Builder{}
	text.WriteString("| alert | severity | after | meaning |\n|---|---|---|---|\n")
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			fmt.Fprintf(text, "| [`%s`](troubleshooting.md#%s) | %s | %s | %s |\n", rule.Alert, strings.ToLower(rule.Alert),
				rule.Labels["severity"], *rule.For, rule.Annotations["summary"])
		}
	}
	return text.String(), nil
}
