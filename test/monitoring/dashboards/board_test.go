package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// names are the dashboards.
var names = []string{"fleet", "node", "operator"}

// board is what the tests and the pictures need of a dashboard.
type board struct {
	UID           string
	Title         string
	SchemaVersion int
	Panels        []panel
	Templating    struct{ List []variable }
}

type variable struct {
	Name, Type string
	Query      any
	Datasource datasource
}

type datasource struct{ Type, UID string }

type panel struct {
	ID              int
	Type, Title     string
	Description     string
	GridPos         struct{ X, Y, W, H int }
	Datasource      datasource
	Targets         []target
	FieldConfig     fieldConfig
	Options         options
	Transformations []struct {
		ID      string
		Options struct {
			IndexByName  map[string]int
			RenameByName map[string]string
		}
	}
}

// target is a query.
type target struct {
	RefID, Expr, LegendFormat, Format string
	Instant, Range                    bool
	Datasource                        datasource
}

type fieldConfig struct {
	Defaults struct {
		Unit     string
		Min, Max *float64
		Decimals *int
		Mappings []struct {
			Options map[string]struct{ Text string }
		}
		Thresholds struct {
			Steps []struct {
				Value *float64
				Color string
			}
		}
		Custom struct {
			LineWidth, FillOpacity float64
			Stacking               struct{ Mode string }
		}
	}
	Overrides []struct {
		Matcher    struct{ Options string }
		Properties []struct {
			ID    string
			Value any
		}
	}
}

type options struct {
	SortBy  []struct{ DisplayName string }
	YAxis   struct{ Unit string }
	PerPage int
}

// root of the repository.
const root = "../../.."

func path(name string) string { return filepath.Join(root, "config/dashboards", name+".json") }

func read(t *testing.T, name string) (board, []byte) {
	t.Helper()
	text, err := os.ReadFile(path(name))
	if err != nil {
		t.Fatal(err)
	}
	b := board{}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b, text
}

// values are those that Grafana replaces variables by: what the user has chosen, and its own.
type values map[string]string

var chosen = values{
	"datasource": "prometheus", "cluster": ".*", "job": ".+", "node": "train-1",
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
