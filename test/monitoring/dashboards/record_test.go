package dashboards

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/clusterpolicy/gpu-operator/test/monitoring/ruleset"
)

// scraped is a target of Prometheus with its answer, in the text format.
type scraped struct {
	// labels are those of the target.
	labels map[string]string
	// honor keeps the labels of the answer where the target has the same, as honorLabels of a ServiceMonitor does.
	honor bool
	text  string
}

// rulesOfGPUs returns the rules of config/monitoring, with a price of 2.5 for a GPU hour, which they do not have by
// default.
func rulesOfGPUs(t *testing.T) []ruleset.Group {
	t.Helper()
	folder := filepath.Join(root, "config/monitoring")
	groups, err := ruleset.Read(filepath.Join(folder, "parameters.yaml"), filepath.Join(folder, "recording.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	groups[0].Rules = append(groups[0].Rules, ruleset.Rule{
		Record: "gpu_rules:price_per_hour", Expr: "vector(2.5)", Labels: map[string]string{"modelName": "NVIDIA H100 80GB HBM3"},
	})
	return groups
}

// record stores the answers of targets between two times, every scrapeEvery, and what the rules make of them.
func record(t *testing.T, from, until time.Time, scrape func(at time.Time) []scraped) *teststorage.TestStorage {
	t.Helper()
	return recordWith(t, rulesOfGPUs(t), from, until, scrape)
}

func recordWith(
	t *testing.T, groups []ruleset.Group, from, until time.Time, scrape func(at time.Time) []scraped,
) *teststorage.TestStorage {
	t.Helper()
	storage := teststorage.New(t)
	rules, err := ruleset.Load(t.Context(), groups, t.TempDir(), scrapeEvery, engine(), storage)
	if err != nil {
		t.Fatal(err)
	}
	for at := from; !at.After(until); at = at.Add(scrapeEvery) {
		appender := storage.Appender(t.Context())
		for _, target := range scrape(at) {
			target.samples(t, func(series labels.Labels, value float64) {
				if _, err := appender.Append(0, series, at.UnixMilli(), value); err != nil {
					t.Fatalf("%s: %v", series, err)
				}
			})
		}
		if err := appender.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := ruleset.Evaluate(t.Context(), rules, at); err != nil {
			t.Fatal(err)
		}
	}
	return storage
}

// samples reads the answer with Prometheus' parser, and adds the labels of the target as Prometheus does.
func (s scraped) samples(t *testing.T, add func(labels.Labels, float64)) {
	t.Helper()
	parser := textparse.NewPromParser([]byte(s.text), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the answer of %v: %v", s.labels, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		series := labels.EmptyLabels()
		parser.Labels(&series)
		_, _, value := parser.Series()
		add(s.labelled(series), value)
	}
}

func (s scraped) labelled(series labels.Labels) labels.Labels {
	merged := map[string]string{}
	maps.Copy(merged, s.labels)
	series.Range(func(l labels.Label) {
		if _, conflicts := s.labels[l.Name]; conflicts && !s.honor {
			merged["exported_"+l.Name] = l.Value
			return
		}
		merged[l.Name] = l.Value
	})
	return labels.FromMap(merged)
}

// monitored returns the labels that the Prometheus operator gives to a pod behind a Service.
func monitored(service, pod string) map[string]string {
	return map[string]string{
		"job": service, "service": service, "namespace": "gpu-operator", "pod": pod, "container": service,
		"endpoint": "metrics", "instance": pod + ":9400",
	}
}

// fleetOf returns what all targets of a fleet answer.
func fleetOf(nodes []gpuNode, operator *simulation) func(time.Time) []scraped {
	return func(at time.Time) []scraped {
		targets := []scraped{{labels: monitored("gpu-operator", "gpu-operator-5d9f"), text: operator.at(at)}}
		for _, n := range nodes {
			targets = append(targets,
				scraped{
					labels: monitored("nvidia-dcgm-exporter", "nvidia-dcgm-exporter-"+n.name), honor: n.honor,
					text: exposition(n.name, n.release, n.units(at)),
				},
				scraped{labels: monitored("nvidia-gpu-health", "nvidia-gpu-health-"+n.name), text: healthOf(n, at)},
				scraped{
					labels: monitored("nvidia-node-status-exporter", "nvidia-node-status-exporter-"+n.name),
					text:   statusOf(n, at),
				})
		}
		return targets
	}
}
