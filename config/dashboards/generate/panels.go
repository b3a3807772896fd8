package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/statushistory"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// query is one expression of a panel. Its legend names each series by its labels.
type query struct{ expression, legend string }

// panel is what all kinds of panels have.
type panel struct {
	title, about, unit string
	// width of 24 columns, and height in rows of 30 pixels.
	width, height uint32
	queries       []query
	// without is shown instead of "No data"; by default what the series need.
	without string
}

// needs returns the switch of what the panel shows; empty for the exporter and the operator.
func (p panel) needs() string {
	for _, one := range []struct {
		series *regexp.Regexp
		text   string
	}{{readyName, readyNeeded}, {agentName, agentNeeded}, {
		recordedName, "Needs the recording rules: monitoring.rules.enabled",
	}} {
		if slices.ContainsFunc(p.queries, func(q query) bool { return one.series.MatchString(q.expression) }) {
			return one.text
		}
	}
	return ""
}

const (
	rulesNeeded = "Idle GPUs, their cost and what namespaces hold need the recording rules: monitoring.rules.enabled."
	agentNeeded = "Needs the health agent: health.agent.enabled"
	readyNeeded = "Needs the node status exporter: nodeStatusExporter.enabled"
	priceNeeded = "Needs a price: monitoring.rules.pricePerHour."
)

// Series by what installs them: the rules that need more than the exporter's series, the health agent, and the node
// status exporter.
var (
	recordedName = regexp.MustCompile(`\b(gpu_workload:(share|idle|cost)|namespace):\w+`)
	agentName    = regexp.MustCompile(`gpu_operator_node_(gpu|nvml)_`)
	readyName    = regexp.MustCompile(`gpu_operator_node_(\w+_ready|stage_seconds)\b`)
)

// builder is a builder of a kind of panel.
type builder[B any] interface {
	Title(string) B
	Description(string) B
	Unit(string) B
	Span(uint32) B
	Height(uint32) B
	Datasource(common.DataSourceRef) B
	WithTarget(cog.Builder[variants.Dataquery]) B
	NoValue(string) B
}

// source is the data source that the variable names.
func source() common.DataSourceRef {
	kind, uid := "prometheus", "${datasource}"
	return common.DataSourceRef{Type: &kind, Uid: &uid}
}

// shape is what a panel gets from its queries: values over time, the current value of each series, or a table of them.
type shape int

const (
	overTime shape = iota
	current
	tabular
)

// fill sets what all kinds of panels have.
func fill[B builder[B]](b B, p panel, as shape) B {
	b = b.Title(p.title).Description(p.about).Unit(p.unit).Span(p.width).Height(p.height).Datasource(source())
	for i, q := range p.queries {
		target := prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Expr(q.expression).
			LegendFormat(q.legend).Datasource(source())
		switch as {
		case overTime:
			target = target.Range().Format(prometheus.PromQueryFormatTimeSeries)
		case current:
			target = target.Instant().Format(prometheus.PromQueryFormatTimeSeries)
		case tabular:
			target = target.Instant().Format(prometheus.PromQueryFormatTable)
		}
		b = b.WithTarget(target)
	}
	// In a table this would be the text of each empty cell.
	if text := cmp.Or(p.without, p.needs()); as != tabular && text != "" {
		b = b.NoValue(text)
	}
	return b
}

// step is a value from which on a panel has a colour.
type step struct {
	from  float64
	color string
}

// colors returns thresholds; the first colour is that of values below the first step.
func colors(lowest string, steps ...step) *dashboard.ThresholdsConfigBuilder {
	list := []dashboard.Threshold{{Color: lowest}}
	for _, s := range steps {
		list = append(list, dashboard.Threshold{Value: &s.from, Color: s.color})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(list)
}

var (
	neutral = colors("blue")
	// good is for what should be 0, and wanted for what should be 1.
	good   = colors("green", step{1, "red"})
	wanted = colors("red", step{1, "green"})
)

// words shows text instead of values.
func words(texts map[string]string) []dashboard.ValueMapping {
	results := map[string]dashboard.ValueMappingResult{}
	for value, text := range texts {
		results[value] = dashboard.ValueMappingResult{Text: &text}
	}
	return []dashboard.ValueMapping{{
		ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: results},
	}}
}

func colored(mode dashboard.FieldColorModeId) *dashboard.FieldColorBuilder {
	return dashboard.NewFieldColorBuilder().Mode(mode)
}

// lastValue shows the current value, on a background in its colour.
func lastValue(p panel, thresholds *dashboard.ThresholdsConfigBuilder) *stat.PanelBuilder {
	return fill(stat.NewPanelBuilder(), p, current).Thresholds(thresholds).
		ColorScheme(colored(dashboard.FieldColorModeIdThresholds)).ColorMode(common.BigValueColorModeBackground).
		GraphMode(common.BigValueGraphModeNone).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}

// lines shows one line per series.
func lines(p panel) *timeseries.PanelBuilder {
	return fill(timeseries.NewPanelBuilder(), p, overTime).LineWidth(1).FillOpacity(0).Min(0).
		ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementRight).ShowLegend(true).Calcs([]string{"lastNotNull"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending))
}

// areas shows the series on top of each other, without lines, as those of series with the value 0 would lie on others.
func areas(p panel) *timeseries.PanelBuilder {
	return lines(p).LineWidth(0).FillOpacity(70).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// heat shows how many things have which value over time; each series is a row, named after its lower bound.
func heat(p panel) *heatmap.PanelBuilder {
	return fill(heatmap.NewPanelBuilder(), p, overTime).Calculate(false).MaxDataPoints(120).
		RowsFrame(heatmap.NewRowsHeatmapOptionsBuilder().Layout(common.HeatmapCellLayoutGe).Value("GPUs")).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(p.unit)).
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeScheme).Scheme("Oranges").
			Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64).Fill("dark-orange")).
		CellGap(1).FilterValues(heatmap.NewFilterValueRangeBuilder().Le(1e-9))
}

// shades is the colour of shares: darker is more. It does not judge, as red would: a GPU that works is no fault.
const shades = dashboard.FieldColorModeIdContinuousBlues

// history shows each series, a share, as a row of cells in the colour of their value.
func history(p panel) *statushistory.PanelBuilder {
	return fill(statushistory.NewPanelBuilder(), p, overTime).MaxDataPoints(60).PerPage(20).Min(0).Max(1).
		ShowValue(common.VisibilityModeNever).RowHeight(0.9).ColorScheme(colored(shades)).FillOpacity(90).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(false))
}

// states shows each series as a bar that has the colour of its state at each time.
func states(
	p panel, thresholds *dashboard.ThresholdsConfigBuilder, texts map[string]string,
) *statetimeline.PanelBuilder {
	return fill(statetimeline.NewPanelBuilder(), p, overTime).Thresholds(thresholds).Mappings(words(texts)).
		ColorScheme(colored(dashboard.FieldColorModeIdThresholds)).FillOpacity(80).LineWidth(0).RowHeight(0.9).
		ShowValue(common.VisibilityModeNever).MergeValues(true).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).Placement(common.LegendPlacementBottom).
			DisplayMode(common.LegendDisplayModeList))
}

// bars shows the current value of each series as a bar.
func bars(p panel, thresholds *dashboard.ThresholdsConfigBuilder) *bargauge.PanelBuilder {
	return fill(bargauge.NewPanelBuilder(), p, current).Thresholds(thresholds).Min(0).
		ColorScheme(colored(dashboard.FieldColorModeIdThresholds)).
		Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}

// column is a column of a table: a label of the series, or the value of a query.
type column struct {
	// field is the label, or "Value #A" for the first query.
	field, title, unit string
	// bar shows the value from 0 to this maximum as a bar; 0 for none.
	bar float64
	// link is the address that a click opens.
	link string
	// words are shown instead of values.
	words map[string]string
}

// rows shows one row per set of labels; the queries are joined by those that they share. Other labels are left out.
func rows(p panel, sortBy string, columns ...column) *table.PanelBuilder {
	order, titles, names := map[string]any{}, map[string]any{}, ""
	for i, c := range columns {
		order[c.field], titles[c.field] = i, c.title
		names += "|" + c.field
	}
	b := fill(table.NewPanelBuilder(), p, tabular).ShowHeader(true).CellHeight(common.TableCellHeightSm).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})).
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "filterFieldsByName", Options: map[string]any{
			"include": map[string]any{"pattern": "^(" + names[1:] + ")$"},
		}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"indexByName": order, "renameByName": titles,
		}})
	if sortBy != "" {
		b = b.SortBy([]cog.Builder[common.TableSortByFieldState]{
			common.NewTableSortByFieldStateBuilder().DisplayName(sortBy).Desc(true),
		})
	}
	for _, c := range columns {
		if properties := c.properties(); len(properties) > 0 {
			b = b.OverrideByName(c.title, properties)
		}
	}
	return b
}

// properties returns the column's own settings, with the identifiers of Grafana's registry of field options.
func (c column) properties() []dashboard.DynamicConfigValue {
	var list []dashboard.DynamicConfigValue
	set := func(id string, value any) { list = append(list, dashboard.DynamicConfigValue{Id: id, Value: value}) }
	if c.unit != "" {
		set("unit", c.unit)
	}
	if c.bar > 0 {
		set("min", 0)
		set("max", c.bar)
		set("custom.cellOptions", map[string]any{"type": "gauge", "mode": "basic"})
		set("color", map[string]any{"mode": string(shades)})
	}
	if c.words != nil {
		set("mappings", words(c.words))
	}
	if c.link != "" {
		set("links", []map[string]any{{"title": "Open", "url": c.link}})
	}
	return list
}

// The variables.

func datasource() *dashboard.DatasourceVariableBuilder {
	return dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")
}

// choice is a variable whose values are those of a label, or that the query returns as Prometheus shows series.
func choice(name, label, text string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Query(dashboard.StringOrMap{String: &text}).
		Datasource(source()).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc)
}

// cluster matches series without the label too, as most installations have.
func cluster() *dashboard.QueryVariableBuilder {
	return choice("cluster", "Cluster", "label_values(gpu_operator_gpu_nodes_total, cluster)").
		IncludeAll(true).AllValue(".*").Current(selection("All", "$__all"))
}

// listed is a variable whose values are those of a label in a vector.
func listed(name, label, by, vector string) *dashboard.QueryVariableBuilder {
	return choice(name, label, fmt.Sprintf("query_result(count by (%s) (%s))", by, vector)).
		Regex(fmt.Sprintf(`/[{,]\s*%s="([^"]+)"/`, by))
}

// several is a variable whose values can be chosen together; all of them also stand for series without the label.
func several(name, label, by, vector string) *dashboard.QueryVariableBuilder {
	return listed(name, label, by, vector).Multi(true).IncludeAll(true).AllValue(".*").Current(selection("All", "$__all"))
}

func selection(text, value string) dashboard.VariableOption {
	return dashboard.VariableOption{
		Text: dashboard.StringOrArrayOfString{String: &text}, Value: dashboard.StringOrArrayOfString{String: &value},
	}
}

// board is an empty dashboard with the variables that all have.
func board(name, title, about string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).Uid("gpu-operator-"+name).Description(about).
		Tags([]string{"gpu-operator", "gpu"}).Readonly().Timezone("browser").Time("now-6h", "now").Refresh("1m").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("GPU dashboards").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{"gpu-operator"}).KeepTime(true).IncludeVars(true)).
		WithVariable(datasource()).WithVariable(cluster())
}

func section(title string) *dashboard.RowBuilder { return dashboard.NewRowBuilder(title) }
