package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"go.yaml.in/yaml/v3"
)

// rules are the expressions of recorded series, by their names.
type rules map[string]string

// readRules reads a PrometheusRule.
func readRules(path string) (rules, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	file := struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Record, Expr string }
			}
		}
	}{}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("decoding the rules of %s: %w", path, err)
	}
	found := rules{}
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			found[rule.Record] = strings.Join(strings.Fields(rule.Expr), " ")
		}
	}
	return found, nil
}

// expand makes the queries of a dashboard work without the rules.
func (r rules) expand(board *dashboard.Dashboard) {
	for _, panel := range board.Panels {
		if panel.Panel == nil {
			continue
		}
		for i, target := range panel.Panel.Targets {
			if query, ok := target.(prometheus.Dataquery); ok {
				query.Expr = r.orScraped(query.Expr)
				panel.Panel.Targets[i] = query
			}
		}
	}
	for _, variable := range board.Templating.List {
		if query := variable.Query; query != nil && query.String != nil {
			*query.String = r.orScraped(*query.String)
		}
	}
}

var (
	// aggregated is what by returns of a series that is recorded from the exporter's series alone.
	aggregated = regexp.MustCompile(`max by \(([^)]*)\) \((gpu:\w+:\w+|gpu_workload:utilization:ratio)\{([^}]*)\}\)`)
	selected   = regexp.MustCompile(`\b(DCGM_\w+|gpu\w*:\w+:\w+)(?:\{([^}]*)\})?`)
	nodeLabel  = regexp.MustCompile(`\bnode(=~?)`)
	podLabel   = regexp.MustCompile(`\b(namespace|pod)(=~?)`)
)

// orScraped adds to each recorded series what its rule would make of the exporter's. Both are aggregated by the same
// labels, so that or takes one of them.
func (r rules) orScraped(expression string) string {
	return aggregated.ReplaceAllStringFunc(expression, func(found string) string {
		match := aggregated.FindStringSubmatch(found)
		return fmt.Sprintf("(%s or max by (%s) (%s))", found, match[1], r.scraped(r[match[2]], match[3]))
	})
}

// scraped returns the expression of a rule with the exporter's series that have these labels.
func (r rules) scraped(expression, matchers string) string {
	return selected.ReplaceAllStringFunc(expression, func(found string) string {
		match := selected.FindStringSubmatch(found)
		all := matchers
		if strings.Contains(match[2], `exported_pod!=""`) {
			all = podLabel.ReplaceAllString(all, "exported_$1$2")
		}
		if match[2] != "" {
			all += ", " + match[2]
		}
		if expression, isRecorded := r[match[1]]; isRecorded {
			return "(" + r.scraped(expression, all) + ")"
		}
		return "(" + strings.Join(selectors(match[1], all), " or ") + ")"
	})
}

// hostLabels are the labels of the node: the first until the exporter's release 4.8.2.
var hostLabels = []string{"Hostname", "hostname"}

// selectors select a series of the exporter by labels of recorded ones; none without a name.
func selectors(name, matchers string) []string {
	if name == "" {
		return nil
	}
	if !nodeLabel.MatchString(matchers) {
		return []string{name + "{" + matchers + "}"}
	}
	var list []string
	for _, label := range hostLabels {
		list = append(list, name+"{"+nodeLabel.ReplaceAllString(matchers, label+"$1")+"}")
	}
	return list
}
