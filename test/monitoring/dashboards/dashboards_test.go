package dashboards

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	grafana "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/statushistory"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/clusterpolicy/gpu-operator/test/monitoring/drawing"
	"github.com/clusterpolicy/gpu-operator/test/monitoring/ruleset"
)

// register makes the SDK know the kinds of panels and queries that the dashboards have; it refuses others.
var register = sync.OnceFunc(func() {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(bargauge.VariantConfig())
	runtime.RegisterPanelcfgVariant(heatmap.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(statushistory.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(grafana.VariantConfig())
})

// Each dashboard decodes strictly with the types that are generated from Grafana's schemas: no unknown field, no wrong
// type, no missing field, and their own rules hold.
func TestDashboardsFollowGrafanasSchema(t *testing.T) {
	register()
	for _, name := range names {
		_, text := read(t, name)
		decoded := dashboard.Dashboard{}
		if err := faults(decoded.UnmarshalJSONStrict(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := decoded.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		broken := strings.Replace(string(text), `"gridPos"`, `"gridPosition"`, 1)
		if err := faults(decoded.UnmarshalJSONStrict([]byte(broken))); err == nil {
			t.Errorf("%s: a misspelt field is not noticed", name)
		}
	}
}

// faults returns nil for an error of the SDK that lists none: its decoder of variants returns such.
func faults(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

// known are the units of Grafana that the dashboards have.
var known = []string{
	units.Short, units.PercentUnit, units.Watt, units.Celsius, units.BytesIEC, units.Hertz, units.Seconds,
	units.OpsPerSecond, units.WritesPerSecond, units.RequestsPerSecond, units.BytesPerSecondIEC, units.WattHour,
}

func TestDashboardsAreWhole(t *testing.T) {
	uids := map[string]bool{}
	for _, name := range names {
		b, text := read(t, name)
		if b.UID == "" || len(b.UID) > 40 || uids[b.UID] {
			t.Errorf("%s: the uid %q is empty, too long or used twice", name, b.UID)
		}
		uids[b.UID] = true
		if len(text) > 200_000 {
			t.Errorf("%s: %d bytes do not fit into the annotation of kubectl apply (262144)", name, len(text))
		}
		if strings.Contains(string(text), "__inputs") {
			t.Errorf("%s: the sidecar cannot fill in __inputs", name)
		}
		checkPanels(t, name, b)
		checkVariables(t, name, b)
	}
}

func checkPanels(t *testing.T, name string, b drawing.Board) {
	t.Helper()
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: %q has the id %d, which is 0 or used twice", name, p.Title, p.ID)
		}
		ids[p.ID] = true
		checkPlace(t, name, p, cells)
		if p.Type != "row" {
			checkContent(t, name, p)
		}
	}
}

// checkPlace notes the cells of the grid that a panel takes.
func checkPlace(t *testing.T, name string, p drawing.Panel, cells map[[2]int]string) {
	t.Helper()
	grid := p.GridPos
	if grid.W < 1 || grid.H < 1 || grid.X < 0 || grid.X+grid.W > 24 {
		t.Errorf("%s: %q does not fit into the grid: %+v", name, p.Title, grid)
	}
	for x := grid.X; x < grid.X+grid.W; x++ {
		for y := grid.Y; y < grid.Y+grid.H; y++ {
			if other, taken := cells[[2]int{x, y}]; taken {
				t.Fatalf("%s: %q and %q overlap", name, p.Title, other)
			}
			cells[[2]int{x, y}] = p.Title
		}
	}
}

func checkContent(t *testing.T, name string, p drawing.Panel) {
	t.Helper()
	if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
		t.Errorf("%s: panel %d needs a title, a description and a query: %q", name, p.ID, p.Title)
	}
	if unit := p.FieldConfig.Defaults.Unit; !slices.Contains(known, unit) {
		t.Errorf("%s: %q has the unit %q", name, p.Title, unit)
	}
	for i, q := range p.Targets {
		if q.Datasource != (drawing.Datasource{Type: "prometheus", UID: "${datasource}"}) || p.Datasource != q.Datasource {
			t.Errorf("%s: %q does not use the variable of the data source", name, p.Title)
		}
		if q.RefID != string(rune('A'+i)) || q.Instant == q.Range {
			t.Errorf("%s: %q: query %d is %q, instant %t, range %t", name, p.Title, i, q.RefID, q.Instant, q.Range)
		}
	}
}

// Every variable is declared, and used.
func checkVariables(t *testing.T, file string, b drawing.Board) {
	t.Helper()
	used := map[string]bool{"datasource": true}
	asks := queries(b)
	for _, v := range b.Templating.List {
		if text, is := v.Query.(string); is {
			asks = append(asks, asked{target: drawing.Target{Expr: text}})
		}
	}
	for _, q := range asks {
		for _, match := range name.FindAllStringSubmatch(q.target.Expr, -1) {
			used[match[1]+match[2]] = true
		}
	}
	declared := map[string]bool{}
	for _, v := range b.Templating.List {
		declared[v.Name] = true
		if !used[v.Name] {
			t.Errorf("%s: no query uses the variable %s", file, v.Name)
		}
		if v.Type == "query" && v.Datasource.UID != "${datasource}" {
			t.Errorf("%s: the variable %s does not use that of the data source", file, v.Name)
		}
	}
	for v := range used {
		if v != "1" && !strings.HasPrefix(v, "__") && !declared[v] {
			t.Errorf("%s: the variable %s is not declared", file, v)
		}
	}
}

// asked is a query with its place.
type asked struct {
	board  string
	panel  drawing.Panel
	target drawing.Target
}

func (a asked) String() string {
	return fmt.Sprintf("%s, %q, query %s", a.board, a.panel.Title, a.target.RefID)
}

var resultOf = regexp.MustCompile(`^query_result\((.*)\)$`)

// queries returns those of the panels, and those of variables that are whole expressions.
func queries(b drawing.Board) []asked {
	var list []asked
	for _, p := range b.Panels {
		for _, q := range p.Targets {
			list = append(list, asked{b.Title, p, q})
		}
	}
	for _, v := range b.Templating.List {
		text, _ := v.Query.(string)
		if match := resultOf.FindStringSubmatch(text); match != nil {
			list = append(list, asked{
				b.Title, drawing.Panel{Title: "variable " + v.Name}, drawing.Target{Expr: match[1], Instant: true, RefID: v.Name},
			})
		}
	}
	return list
}

// labelValues are the variables that list a label of a metric.
var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// Every metric of every query is one that an exporter or the operator serves, or that a rule records. The set of those
// comes from their text, their collectors and the rules.
func TestEverySeriesExists(t *testing.T) {
	series := knownSeries(t)
	all, unknown := 0, 0
	check := func(where fmt.Stringer, metric string) {
		all++
		if !series[metric] {
			unknown++
			t.Errorf("%s: nothing serves or records %s", where, metric)
		}
	}
	for _, name := range names {
		b, _ := read(t, name)
		for _, q := range queries(b) {
			for _, metric := range metricsOf(t, q.target.Expr) {
				check(q, metric)
			}
		}
		for _, v := range b.Templating.List {
			text, _ := v.Query.(string)
			if match := labelValues.FindStringSubmatch(text); match != nil {
				check(asked{board: b.Title, panel: drawing.Panel{Title: "variable " + v.Name}}, match[1])
			}
		}
	}
	t.Logf("metrics in queries that exist: %d/%d, unknown: %d", all-unknown, all, unknown)
}

// What a rule makes of a metric of the exporter has no second definition in a dashboard: a query that has the metric, to
// work without the rules, has the series as well.
func TestNothingIsDefinedTwice(t *testing.T) {
	defined := map[string]string{}
	for _, group := range rulesOfGPUs(t) {
		for _, rule := range group.Rules {
			for _, metric := range metricsOf(t, rule.Expr) {
				defined[metric] = rule.Record
			}
		}
	}
	for _, name := range names {
		b, _ := read(t, name)
		for _, q := range queries(b) {
			all := metricsOf(t, q.target.Expr)
			for _, metric := range all {
				if defined[metric] != "" && strings.HasPrefix(metric, "DCGM_") && !slices.ContainsFunc(all, isRecorded) {
					record := defined[metric]
					t.Errorf("%s: use what is made of %s, such as %s", q, metric, record)
				}
			}
		}
	}
}

func isRecorded(metric string) bool { return strings.Contains(metric, ":") }

// metricsOf returns the metrics that an expression selects.
func metricsOf(t *testing.T, text string) []string {
	t.Helper()
	text = chosen.interpolate(text, time.Hour, scrapeEvery)
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var found []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			found = append(found, selector.Name)
		}
		return nil
	})
	return found
}

// knownSeries are the names of all series that are served, of which histograms have three, or recorded.
func knownSeries(t *testing.T) map[string]bool {
	t.Helper()
	series := map[string]bool{}
	for _, group := range rulesOfGPUs(t) {
		for _, rule := range group.Rules {
			series[rule.Record] = true
		}
	}
	for name := range programs() {
		series[name] = true
	}
	for _, r := range []release{release482, release483, release490} {
		for _, f := range fields {
			if name := f.name(r); name != "" {
				series[name] = true
			}
		}
	}
	operator := scraped{text: newSimulation(t, time.Hour).at(begin.Add(time.Hour))}
	operator.samples(t, func(l labels.Labels, _ float64) { series[l.Get(labels.MetricName)] = true })
	return series
}

// engine is Prometheus' own, with its defaults.
func engine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
}

// asker runs queries on a recording, over a time up to now.
type asker struct {
	engine  *promql.Engine
	storage *teststorage.TestStorage
	now     time.Time
	over    time.Duration
	step    time.Duration
	values  values
}

// ask returns the series of a query: with a point each, or with points over time.
func (a asker) ask(t *testing.T, q drawing.Target) promql.Matrix {
	t.Helper()
	expression := a.values.interpolate(q.Expr, a.over, scrapeEvery)
	var query promql.Query
	var err error
	if q.Instant {
		query, err = a.engine.NewInstantQuery(t.Context(), a.storage, nil, expression, a.now)
	} else {
		query, err = a.engine.NewRangeQuery(t.Context(), a.storage, nil, expression, a.now.Add(-a.over), a.now, a.step)
	}
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil {
		t.Fatalf("%s: %v", expression, result.Err)
	}
	return matrix(result.Value)
}

// matrix returns a result in a shape of its own, as that of the engine is reused.
func matrix(result parser.Value) promql.Matrix {
	var found promql.Matrix
	switch result := result.(type) {
	case promql.Matrix:
		for _, series := range result {
			found = append(found, promql.Series{Metric: series.Metric, Floats: slices.Clone(series.Floats)})
		}
	case promql.Vector:
		for _, sample := range result {
			found = append(found, promql.Series{Metric: sample.Metric, Floats: []promql.FPoint{{T: sample.T, F: sample.F}}})
		}
	case promql.Scalar:
		found = promql.Matrix{{Floats: []promql.FPoint{{T: result.T, F: result.V}}}}
	}
	return found
}

// Every query has a result on what the rules record for each release of the exporter, with and without honorLabels, of a
// fleet in which something of everything has happened.
func TestEveryQueryHasAResult(t *testing.T) {
	const lasting = 5 * time.Hour
	operator := newSimulation(t, lasting)
	for _, test := range []struct {
		name  string
		nodes []gpuNode
	}{
		{"4.8.2", only(release482, false)},
		{"4.8.3", only(release483, false)},
		{"4.9", only(release490, false)},
		{"4.9 with honorLabels", only(release490, true)},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := begin.Add(lasting)
			a := asker{
				engine: engine(), storage: record(t, now.Add(-70*time.Minute), now, fleetOf(test.nodes, operator)), now: now,
				over: time.Hour, step: 3 * time.Minute, values: chosen,
			}
			all, empty := 0, 0
			for _, name := range names {
				b, _ := read(t, name)
				for _, q := range queries(b) {
					all++
					if len(a.ask(t, q.target)) == 0 {
						empty++
						t.Errorf("%s: no result", q)
					}
				}
			}
			t.Logf("queries with a result: %d/%d", all-empty, all)
			checkIdleCost(t, a)
		})
	}
}

// Without the rules, the health agent and the node status exporter each query has the same result that it has with them,
// unless its panel names the switch of what it needs.
func TestTheExporterAlone(t *testing.T) {
	const lasting = 4 * time.Hour
	operator := newSimulation(t, lasting)
	now := begin.Add(lasting)
	for _, honor := range []bool{false, true} {
		for _, r := range []release{release482, release483, release490} {
			all := fleetOf(only(r, honor), operator)
			exporters := func(at time.Time) []scraped {
				return slices.DeleteFunc(all(at), func(s scraped) bool {
					return s.labels["service"] != "nvidia-dcgm-exporter" && s.labels["service"] != "gpu-operator"
				})
			}
			ask := func(groups []ruleset.Group) asker {
				return asker{
					engine: engine(), storage: recordWith(t, groups, now.Add(-8*time.Minute), now, exporters), now: now,
					over: 4 * time.Minute, step: time.Minute, values: chosen,
				}
			}
			with, alone := ask(rulesOfGPUs(t)), ask(nil)
			for _, name := range []string{"fleet", "node", "job"} {
				b, _ := read(t, name)
				for _, q := range queries(b) {
					if !needsMore(q) {
						same(t, q, with.ask(t, q.target), alone.ask(t, q.target))
					}
				}
			}
		}
	}
}

var switched = regexp.MustCompile(`gpu_operator_(node_|nvidia_)|\b(namespace|gpu_workload:(share|idle|cost)):?\w*:`)

// needsMore reports whether a query shows what the exporter alone does not have.
func needsMore(q asked) bool { return switched.MatchString(q.target.Expr) }

// same compares the last values of results.
func same(t *testing.T, q asked, want, got promql.Matrix) {
	t.Helper()
	text := func(m promql.Matrix) []string {
		var list []string
		for _, series := range m {
			list = append(list, fmt.Sprintf("%s %.6g", series.Metric.DropReserved(func(label string) bool {
				return label == labels.MetricName
			}), series.Floats[len(series.Floats)-1].F))
		}
		slices.Sort(list)
		return list
	}
	if len(got) == 0 || !slices.Equal(text(want), text(got)) {
		t.Errorf("%s:\nwith rules %s\nalone %s", q, text(want), text(got))
	}
}

// The cost of idle GPUs is the price of those, or parts of those, that a pod has not used for an hour.
func checkIdleCost(t *testing.T, a asker) {
	t.Helper()
	want := map[string]float64{}
	for _, n := range only(release483, false) {
		for i, u := range n.units(a.now) {
			if u.team == "" {
				continue
			}
			part := 1.0
			if u.profile != "" {
				part = 2. / 7
			}
			want[u.team] += 2.5 * part * idle(n, i, a.now)
		}
	}
	if want["notebooks"] == 0 || want["vision"] != 0 {
		t.Fatalf("the recorded fleet should have idle and used GPUs: %v", want)
	}
	for team, cost := range want {
		want[team] = math.Round(cost*1e6) / 1e6
	}
	b, _ := read(t, "fleet")
	got := map[string]float64{}
	for _, q := range queries(b) {
		if q.panel.Title == "Cost of idle GPUs per hour" {
			q.target.Instant = true
			for _, series := range a.ask(t, q.target) {
				got[series.Metric.Get("namespace")] = math.Round(series.Floats[0].F*1e6) / 1e6
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the cost of idle GPUs is %v, want %v", got, want)
	}
}

// idle returns 1 for a unit of a node that was never used in the last hour, and else 0.
func idle(n gpuNode, index int, now time.Time) float64 {
	for at := now.Add(-59 * time.Minute); !at.After(now); at = at.Add(scrapeEvery) {
		if n.units(at)[index].util >= 0.05 {
			return 0
		}
	}
	return 1
}
