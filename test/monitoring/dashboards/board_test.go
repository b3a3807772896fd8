package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/monitoring/drawing"
)

// names are the dashboards.
var names = []string{"fleet", "node", "job", "operator"}

// root of the repository.
const root = "../../.."

func path(name string) string { return filepath.Join(root, "config/dashboards", name+".json") }

func read(t *testing.T, name string) (drawing.Board, []byte) {
	t.Helper()
	text, err := os.ReadFile(path(name))
	if err != nil {
		t.Fatal(err)
	}
	b := drawing.Board{}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b, text
}

// values are those that Grafana replaces variables by: what the user has chosen, and its own.
type values map[string]string

var chosen = values{
	"datasource": "prometheus", "cluster": ".*", "job": "(gpu-operator)", "node": "train-1", "gpu": ".*",
	"product": ".*", "namespace": ".*", "pod": ".*",
}

var name = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// interpolate replaces the variables of an expression for a range that Prometheus scrapes every so often. Grafana's
// $__rate_interval is at least four scrapes. What is no variable stays, such as the $1 of label_replace.
func (v values) interpolate(text string, over, scrape time.Duration) string {
	own := values{
		"__range": over.String(), "__range_s": fmt.Sprint(int(over.Seconds())), "__rate_interval": (4 * scrape).String(),
	}
	return name.ReplaceAllStringFunc(text, func(found string) string {
		match := name.FindStringSubmatch(found)
		key := match[1] + match[2]
		if value, there := v[key]; there {
			return value
		}
		if value, there := own[key]; there {
			return value
		}
		return found
	})
}
