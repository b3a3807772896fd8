package rules

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/test/monitoring/ruleset"
)

// step is the time between two evaluations, for speed: shorter than the 5 minutes after which a series counts as ended.
// Scrapes are a minute apart.
const step = 4 * time.Minute

// root of the repository.
const root = "../../.."

// The files of config/monitoring.
var (
	parameters = filepath.Join(root, "config/monitoring/parameters.yaml")
	recording  = filepath.Join(root, "config/monitoring/recording.yaml")
	alerts     = filepath.Join(root, "config/monitoring/alerts.yaml")
	aliases    = filepath.Join(root, "config/monitoring/aliases/aliases.yaml")
)

// What the operator creates, as its golden files have it.
var (
	ofOperator    = filepath.Join(root, "internal/stack/render/testdata/operator-metrics-metrics.golden.yaml")
	ofNodeStatus  = filepath.Join(root, "internal/stack/render/testdata/node-status-exporter-metrics.golden.yaml")
	ofAccelerator = filepath.Join(root, "internal/stack/render/testdata/dcgm-exporter-metrics-openshift.golden.yaml")
)

type (
	group = ruleset.Group
	rule  = ruleset.Rule
)

// read returns the groups of the PrometheusRules in files.
func read(t *testing.T, files ...string) []group {
	t.Helper()
	found, err := ruleset.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// decodeRules returns a list of rules in YAML.
func decodeRules(t *testing.T, text string) []rule {
	t.Helper()
	var found []rule
	if err := yaml.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// cluster is a Prometheus with rules and scraped series.
type cluster struct {
	t      *testing.T
	loader *promqltest.LazyLoader
	groups []*rules.Group
}

// newCluster loads the rules, and series in the notation of promtool: one on each line, with a value for each minute.
func newCluster(t *testing.T, groups []group, series string) *cluster {
	t.Helper()
	input := "load 1m\n"
	for line := range strings.Lines(series) {
		if line = strings.TrimSpace(line); line != "" {
			input += "  " + line + "\n"
		}
	}
	loader, err := promqltest.NewLazyLoader(input, promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, input)
	}
	t.Cleanup(func() {
		if err := loader.Close(); err != nil {
			t.Error(err)
		}
	})
	loaded, err := ruleset.Load(t.Context(), groups, t.TempDir(), step, loader.QueryEngine(), loader.Storage())
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, loader: loader, groups: loaded}
}

// run evaluates the rules at each step until a time, and returns the alerts that fire then: their labels without the
// severity, sorted. It also returns the names of those that fired at any step.
func (c *cluster) run(until time.Duration) (firing []string, ever map[string]bool) {
	c.t.Helper()
	ever = map[string]bool{}
	for at := time.Duration(0); at <= until; at += step {
		c.evaluate(at)
		firing = nil
		for _, group := range c.groups {
			for _, alerting := range group.AlertingRules() {
				for _, active := range alerting.ActiveAlerts() {
					if active.State == rules.StateFiring {
						ever[alerting.Name()] = true
						firing = append(firing, describe(active.Labels))
						c.checkTexts(active)
					}
				}
			}
		}
	}
	slices.Sort(firing)
	return firing, ever
}

func (c *cluster) evaluate(at time.Duration) {
	c.t.Helper()
	c.loader.WithSamplesTill(time.Unix(0, 0).Add(at), func(err error) {
		if err != nil {
			c.t.Fatal(err)
		}
		if err := ruleset.Evaluate(c.t.Context(), c.groups, time.Unix(0, 0).Add(at)); err != nil {
			c.t.Fatal(err)
		}
	})
}

// checkTexts expects the annotations to name nothing that the alert does not have.
func (c *cluster) checkTexts(alert *rules.Alert) {
	c.t.Helper()
	alert.Annotations.Range(func(annotation labels.Label) {
		for _, bad := range []string{"<no value>", "<error", "()", "  "} {
			if strings.Contains(annotation.Value, bad) {
				c.t.Errorf("%s: %s has %q: %s", alert.Labels, annotation.Name, bad, annotation.Value)
			}
		}
	})
}

// describe returns an alert as NAME{labels}.
func describe(of labels.Labels) string {
	name := of.Get(labels.AlertName)
	rest := labels.NewBuilder(of).Del(labels.AlertName, "severity").Labels()
	return name + rest.String()
}

// query returns the samples of an expression at a time, as LABELS VALUE, sorted.
func (c *cluster) query(expression string, at time.Duration) []string {
	c.t.Helper()
	query, err := c.loader.QueryEngine().NewInstantQuery(c.t.Context(), c.loader.Queryable(), nil, expression,
		time.Unix(0, 0).Add(at))
	if err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
	defer query.Close()
	vector, err := query.Exec(c.t.Context()).Vector()
	if err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
	return texts(vector)
}

func texts(vector promql.Vector) []string {
	var found []string
	for _, sample := range vector {
		found = append(found, fmt.Sprintf("%s %.4g", sample.Metric.DropReserved(func(name string) bool {
			return name == labels.MetricName
		}), sample.F))
	}
	slices.Sort(found)
	return found
}
