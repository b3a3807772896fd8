package dashboards

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// Sizes of Grafana's grid: 24 columns, rows of 30 pixels, gaps of 8.
const (
	pageWidth = 1600
	rowHeight = 38
	gap       = 8
)

var (
	page   = hex("#f4f5f5")
	white  = hex("#ffffff")
	frame  = hex("#dcdde0")
	ink    = hex("#24292e")
	gray   = hex("#8e9297")
	unused = hex("#eceef0")
	// named are the colors of thresholds.
	named = map[string]color.RGBA{
		"green": hex("#56a64b"), "red": hex("#e02f44"), "orange": hex("#ff780a"), "blue": hex("#3274d9"),
		"gray": hex("#b8bbc0"),
	}
	// palette is for series.
	palette = []color.RGBA{
		hex("#56a64b"), hex("#e0a800"), hex("#3274d9"), hex("#ff780a"), hex("#e02f44"), hex("#a352cc"), hex("#37a2a0"),
		hex("#806eb7"), hex("#b877d9"), hex("#5c6f7b"), hex("#8f3bb8"), hex("#7a9a01"),
	}
	oranges = []color.RGBA{hex("#fff5eb"), hex("#fdae6b"), hex("#f16913"), hex("#7f2704")}
	blues   = []color.RGBA{hex("#e8f0fa"), hex("#6ea3e0"), hex("#1f4e9e")}
)

// TestPictures draws each dashboard from its queries' results on the mixed fleet, and finds something in every panel.
// With UPDATE_PICTURES=1 it draws the whole recording, not only the last hour, and writes docs/images.
func TestPictures(t *testing.T) {
	update := os.Getenv("UPDATE_PICTURES") != ""
	over, compression := time.Hour, png.BestSpeed
	if update {
		over, compression = end.Sub(begin), png.BestCompression
	}
	storage := record(t, end.Add(-over), end, fleetOf(mixed, newSimulation(t, end.Sub(begin))))
	a := asker{engine: engine(), storage: storage, now: end, over: over, step: 2 * time.Minute, values: chosen}
	for _, name := range names {
		b, _ := read(t, name)
		drawn := picture(t, a, b)
		var file bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: compression}).Encode(&file, drawn); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("../../../docs/images", "dashboard-"+name+".png")
		if update {
			if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v: run make pictures", err)
		}
	}
}

// series is a result with its name in the legend.
type series struct {
	query  int
	name   string
	labels labels.Labels
	points []promql.FPoint
}

func (s series) last() float64 { return s.points[len(s.points)-1].F }

// picture returns the picture of a dashboard.
func picture(t *testing.T, a asker, b board) *canvas {
	t.Helper()
	rows := 0
	for _, p := range b.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	const head = 44
	c := newCanvas(t, pageWidth, head+rows*rowHeight+gap, page)
	c.text(c.title, 12, 26, 0, 0, ink, b.Title)
	c.text(c.normal, pageWidth-12, 26, 1, 0, gray,
		fmt.Sprintf("%s to %s UTC", begin.Format("2006-01-02 15:04"), end.Format("15:04")))
	column := float64(pageWidth-gap) / 24
	for _, p := range b.Panels {
		place := box{
			gap + float64(p.GridPos.X)*column, head + float64(p.GridPos.Y)*rowHeight,
			float64(p.GridPos.W)*column - gap, float64(p.GridPos.H)*rowHeight - gap,
		}
		if p.Type == "row" {
			c.text(c.title, place.x+4, place.y+21, 0, 0, ink, p.Title)
			continue
		}
		c.rect(place, frame)
		c.rect(place.inset(1, 1, 1, 1), white)
		c.panel(t, place, p, results(t, a, p), a)
	}
	return c
}

// results asks a panel's queries.
func results(t *testing.T, a asker, p panel) []series {
	t.Helper()
	var list []series
	for i, q := range p.Targets {
		for _, found := range a.ask(t, q) {
			list = append(list, series{i, legend(q.LegendFormat, found.Metric), found.Metric, found.Floats})
		}
	}
	if len(list) == 0 {
		t.Errorf("%q is empty", p.Title)
	}
	return list
}

// legend replaces {{label}} by the label's value.
func legend(format string, l labels.Labels) string {
	l.Range(func(l labels.Label) { format = strings.ReplaceAll(format, "{{"+l.Name+"}}", l.Value) })
	for {
		before, rest, found := strings.Cut(format, "{{")
		if !found {
			return strings.TrimSpace(format)
		}
		_, after, _ := strings.Cut(rest, "}}")
		format = before + after
	}
}

// panel draws what is below the title of a panel.
func (c *canvas) panel(t *testing.T, place box, p panel, list []series, a asker) {
	t.Helper()
	body := place.inset(10, 32, 10, 10)
	if p.Type != "stat" {
		c.text(c.title, place.x+10, place.y+20, 0, place.w-20, ink, p.Title)
	}
	switch p.Type {
	case "stat":
		c.stat(place, p, list)
	case "timeseries":
		c.timeseries(body, p, list, a)
	case "heatmap":
		c.cells(body, list, a, func(v, highest float64) color.RGBA { return mix(math.Sqrt(v/highest), oranges...) }, true)
	case "status-history":
		high := *p.FieldConfig.Defaults.Max
		c.cells(body, list, a, func(v, _ float64) color.RGBA { return mix(v/high, blues...) }, false)
	case "state-timeline":
		c.cells(body, list, a, func(v, _ float64) color.RGBA { return p.threshold(v) }, false)
	case "bargauge":
		c.bars(body, p, list)
	case "table":
		c.table(body, p, list)
	default:
		t.Errorf("%q: the kind %s cannot be drawn", p.Title, p.Type)
	}
}

// threshold returns the color of a value.
func (p panel) threshold(value float64) color.RGBA {
	chosen := named["gray"]
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			chosen = named[step.Color]
		}
	}
	return chosen
}

// show returns a value as the panel shows it.
func (p panel) show(value float64) string {
	for _, mapping := range p.FieldConfig.Defaults.Mappings {
		if result, there := mapping.Options[strconv.FormatFloat(value, 'g', -1, 64)]; there {
			return result.Text
		}
	}
	return format(p.FieldConfig.Defaults.Unit, value)
}

// format returns a value with its unit.
func format(unit string, value float64) string {
	switch unit {
	case "percentunit":
		return trim(value*100, 1) + " %"
	case "celsius":
		return trim(value, 1) + " °C"
	case "s":
		switch {
		case value >= 3600:
			return trim(value/3600, 1) + " h"
		case value >= 60:
			return trim(value/60, 1) + " min"
		case value > 0 && value < 1:
			return trim(value*1000, 1) + " ms"
		}
		return trim(value, 1) + " s"
	}
	base, suffix := 1000.0, map[string]string{
		"watt": "W", "hertz": "Hz", "bytes": "iB", "binBps": "iB/s", "ops": "ops/s", "wps": "wr/s", "reqps": "req/s",
	}[unit]
	if strings.HasPrefix(suffix, "iB") {
		base = 1024
	}
	powers := []string{"", "k", "M", "G", "T"}
	power := 0
	for math.Abs(value) >= base && power < len(powers)-1 && (unit != "short" || math.Abs(value) >= 10000) {
		value /= base
		power++
	}
	return strings.TrimSpace(trim(value, 2) + " " + powers[power] + suffix)
}

// trim returns a value with so many digits after the point at most, and two significant ones if it is small.
func trim(value float64, digits int) string {
	if small := math.Abs(value); small > 0 && small < 0.1 {
		return strconv.FormatFloat(value, 'g', 2, 64)
	}
	text := strconv.FormatFloat(value, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// stat draws the current value, or those of several series below each other, on their colors.
func (c *canvas) stat(place box, p panel, list []series) {
	inner := place.inset(1, 1, 1, 1)
	if len(list) == 1 {
		c.rect(inner, p.threshold(list[0].last()))
		c.text(c.big, inner.x+inner.w/2, inner.y+inner.h/2+20, 0.5, inner.w-8, white, p.show(list[0].last()))
	} else {
		const head = 28
		height := (inner.h - head) / float64(len(list))
		c.rect(box{inner.x, inner.y, inner.w, head}, p.threshold(list[0].last()))
		for i, s := range list {
			part := box{inner.x, inner.y + head + float64(i)*height, inner.w, height + 1}
			c.rect(part, p.threshold(s.last()))
			c.text(c.normal, part.x+10, part.y+height/2+5, 0, 0, white, s.name)
			c.text(c.title, part.x+part.w-10, part.y+height/2+5, 1, 0, white, p.show(s.last()))
		}
	}
	c.text(c.title, place.x+10, place.y+20, 0, place.w-20, white, p.Title)
}

// scale is an axis of values from 0, with a label at each step.
type scale struct {
	unit          string
	highest, step float64
}

// scaleOf returns an axis for values, with a step of 1, 2 or 5 times a power of ten. What has no unit are numbers of
// things, mostly: their step is 1 at least.
func scaleOf(unit string, highest float64) scale {
	if highest <= 0 {
		highest = 1
	}
	if unit == "bytes" || unit == "binBps" {
		unitSize := math.Pow(1024, math.Floor(math.Log(highest)/math.Log(1024)))
		inUnits := scaleOf("", highest/unitSize)
		return scale{unit, inUnits.highest * unitSize, inUnits.step * unitSize}
	}
	raw := highest / 4
	if unit == "short" && highest >= 1 {
		raw = math.Max(raw, 1)
	}
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, factor := range []float64{5, 2, 1} {
		if factor*power >= raw {
			step = factor * power
		}
	}
	return scale{unit, math.Ceil(highest/step) * step, step}
}

// timeseries draws lines, or areas on top of each other, with the legend at the right.
func (c *canvas) timeseries(body box, p panel, list []series, a asker) {
	stacked := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	legendWidth := 0.0
	for _, s := range list {
		legendWidth = math.Max(legendWidth, 70+width(c.small, s.name)+width(c.small, p.show(s.last())))
	}
	legendWidth = math.Min(legendWidth, body.w*0.42)
	plot := body.inset(58, 4, legendWidth+14, 18)
	right := p.rightAxis()
	highest, highestRight := 0.0, 0.0
	sums := map[int64]float64{}
	for _, s := range list {
		for _, point := range s.points {
			switch {
			case right[s.name] != "":
				highestRight = math.Max(highestRight, point.F)
			case stacked:
				sums[point.T] += point.F
				highest = math.Max(highest, sums[point.T])
			default:
				highest = math.Max(highest, point.F)
			}
		}
	}
	axis := scaleOf(p.FieldConfig.Defaults.Unit, highest)
	if len(right) > 0 {
		plot.w -= 46
	}
	c.grid(plot, axis, a)
	below := map[int64]float64{}
	for i, s := range list {
		ink := palette[i%len(palette)]
		scale := axis
		if unit := right[s.name]; unit != "" {
			scale = scaleOf(unit, highestRight)
			c.ticks(plot, scale, true)
		}
		c.series(plot, p, s, scale, below, ink, a)
		y := body.y + 12 + float64(i)*16
		if y > body.y+body.h-4 {
			continue
		}
		x := plot.x + plot.w + 14 + map[bool]float64{true: 46}[len(right) > 0]
		value := format(cmp.Or(right[s.name], p.FieldConfig.Defaults.Unit), s.last())
		c.rect(box{x, y - 6, 12, 3}, ink)
		c.text(c.small, x+18, y, 0, body.x+body.w-x-26-width(c.small, value), hex("#24292e"), s.name)
		c.text(c.small, body.x+body.w, y, 1, 0, gray, value)
	}
}

// rightAxis returns the series that have an axis of their own at the right, with its unit.
func (p panel) rightAxis() map[string]string {
	found := map[string]string{}
	for _, override := range p.FieldConfig.Overrides {
		unit, right := "", false
		for _, property := range override.Properties {
			switch property.ID {
			case "unit":
				unit, _ = property.Value.(string)
			case "custom.axisPlacement":
				right = property.Value == "right"
			}
		}
		if right {
			found[override.Matcher.Options] = unit
		}
	}
	return found
}

func (a asker) x(plot box, at int64) float64 {
	return plot.x + plot.w*float64(at-a.now.Add(-a.over).UnixMilli())/float64(a.over.Milliseconds())
}

// grid draws the axes of values and of time.
func (c *canvas) grid(plot box, axis scale, a asker) {
	c.ticks(plot, axis, false)
	c.hours(plot, a)
}

func (c *canvas) ticks(plot box, axis scale, right bool) {
	for i := range int(math.Round(axis.highest/axis.step)) + 1 {
		value := float64(i) * axis.step
		y := plot.y + plot.h*(1-value/axis.highest)
		label := format(axis.unit, value)
		if right {
			c.text(c.small, plot.x+plot.w+6, y+4, 0, 0, gray, label)
			continue
		}
		c.rect(box{plot.x, y, plot.w, 1}, unused)
		c.text(c.small, plot.x-6, y+4, 1, 0, gray, label)
	}
}

func (c *canvas) hours(plot box, a asker) {
	every := time.Hour
	if plot.w < 300 {
		every = 2 * time.Hour
	}
	for hour := a.now.Add(-a.over).Truncate(time.Hour); !hour.After(a.now); hour = hour.Add(every) {
		x := a.x(plot, hour.UnixMilli())
		if x < plot.x-1 {
			continue
		}
		c.text(c.small, math.Min(x, plot.x+plot.w-14), plot.y+plot.h+15, 0.5, 0, gray, hour.Format("15:04"))
	}
}

// series draws one, with gaps where it has no values.
func (c *canvas) series(
	plot box, p panel, s series, axis scale, below map[int64]float64, ink color.RGBA, a asker,
) {
	style := p.FieldConfig.Defaults.Custom
	stacked := style.Stacking.Mode == "normal"
	var top, bottom [][2]float64
	flush := func() {
		if stacked {
			slices.Reverse(bottom)
			c.area(append(slices.Clone(top), bottom...), faded(ink, style.FillOpacity/100))
		}
		c.line(top, 1.4*style.LineWidth, ink)
		top, bottom = nil, nil
	}
	y := func(value float64) float64 { return plot.y + plot.h*(1-math.Min(value/axis.highest, 1)) }
	for i, point := range s.points {
		if i > 0 && point.T-s.points[i-1].T > 2*a.step.Milliseconds() {
			flush()
		}
		base := 0.0
		if stacked {
			base = below[point.T]
			below[point.T] += point.F
		}
		top = append(top, [2]float64{a.x(plot, point.T), y(base + point.F)})
		bottom = append(bottom, [2]float64{a.x(plot, point.T), y(base)})
	}
	flush()
}

// cells draws one row per series, the first at the bottom if upwards, with a cell per step in the color of its value.
func (c *canvas) cells(body box, list []series, a asker, paint func(value, highest float64) color.RGBA, upwards bool) {
	left, highest := 0.0, 1e-9
	for _, s := range list {
		left = math.Max(left, width(c.small, s.name))
		for _, point := range s.points {
			highest = math.Max(highest, point.F)
		}
	}
	plot := body.inset(left+10, 0, 4, 18)
	height := plot.h / float64(len(list))
	c.rect(plot, hex("#fafafa"))
	cell := plot.w*float64(a.step.Milliseconds())/float64(a.over.Milliseconds()) + 0.6
	for i, s := range list {
		y := plot.y + float64(i)*height
		if upwards {
			y = plot.y + float64(len(list)-1-i)*height
		}
		c.text(c.small, plot.x-6, y+height/2+4, 1, 0, gray, s.name)
		for _, point := range s.points {
			if point.F == 0 && upwards {
				continue
			}
			x := a.x(plot, point.T)
			c.rect(box{x, y + 0.5, math.Min(cell, plot.x+plot.w-x), height - 1}, paint(point.F, highest))
		}
	}
	c.hours(plot, a)
}

// bars draws the current value of each series.
func (c *canvas) bars(body box, p panel, list []series) {
	left, highest := 0.0, 1e-9
	for _, s := range list {
		left, highest = math.Max(left, width(c.small, s.name)), math.Max(highest, s.last())
	}
	height := math.Min(body.h/float64(len(list)), 34)
	for i, s := range list {
		bar := box{body.x + left + 8, body.y + float64(i)*height + 2, body.w - left - 78, height - 4}
		c.text(c.small, bar.x-6, bar.y+bar.h/2+4, 1, 0, ink, s.name)
		c.rect(bar, unused)
		bar.w *= s.last() / highest
		c.rect(bar, p.threshold(s.last()))
		c.text(c.small, body.x+body.w, bar.y+bar.h/2+4, 1, 0, ink, p.show(s.last()))
	}
}

// row of a table, by field.
type row map[string]string

// merged joins the results of several queries as Grafana's transformation merge does: rows that agree in all fields
// that every result has are one, unless they differ in another field.
func merged(p panel, list []series) []row {
	frames, fields := framesOf(p, list)
	var rows []row
	for _, frame := range frames {
		for _, one := range frame {
			found := false
			for _, other := range rows {
				if agree(one, other, fields, len(frames)) {
					found = true
					maps.Copy(other, one)
				}
			}
			if !found {
				rows = append(rows, one)
			}
		}
	}
	return rows
}

// framesOf returns the rows of each query, and for each label how many queries have it.
func framesOf(p panel, list []series) ([][]row, map[string]int) {
	frames, fields := make([][]row, len(p.Targets)), map[string]int{}
	for i := range p.Targets {
		seen := map[string]bool{}
		for _, s := range list {
			if s.query != i {
				continue
			}
			one := row{}
			s.labels.Range(func(l labels.Label) { one[l.Name], seen[l.Name] = l.Value, true })
			field := "Value"
			if len(p.Targets) > 1 {
				field = "Value #" + p.Targets[i].RefID
			}
			one[field] = strconv.FormatFloat(s.last(), 'g', -1, 64)
			frames[i] = append(frames[i], one)
		}
		for field := range seen {
			fields[field]++
		}
	}
	return frames, fields
}

// agree reports whether two rows can be one: they have the same values in the shared fields, and in the others that
// both have.
func agree(a, b row, fields map[string]int, frames int) bool {
	for field, count := range fields {
		left, inLeft := a[field]
		right, inRight := b[field]
		if left != right && (count == frames || inLeft && inRight) {
			return false
		}
	}
	for field := range a {
		if _, there := b[field]; there && strings.HasPrefix(field, "Value") {
			return false
		}
	}
	return true
}

// column of a table.
type column struct {
	field, title, unit string
	bar                float64
}

func (p panel) columns() []column {
	organize := p.Transformations[len(p.Transformations)-1].Options
	list := make([]column, len(organize.IndexByName))
	for field, i := range organize.IndexByName {
		list[i] = column{field: field, title: organize.RenameByName[field]}
		for _, override := range p.FieldConfig.Overrides {
			if override.Matcher.Options != list[i].title {
				continue
			}
			for _, property := range override.Properties {
				switch property.ID {
				case "unit":
					list[i].unit, _ = property.Value.(string)
				case "max":
					list[i].bar, _ = property.Value.(float64)
				}
			}
		}
	}
	return list
}

func (c *canvas) table(body box, p panel, list []series) {
	rows, columns := merged(p, list), p.columns()
	order := columns[0]
	if len(p.Options.SortBy) > 0 {
		order = columns[slices.IndexFunc(columns, func(c column) bool { return c.title == p.Options.SortBy[0].DisplayName })]
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		left, err := strconv.ParseFloat(a[order.field], 64)
		right, also := strconv.ParseFloat(b[order.field], 64)
		if err == nil && also == nil && strings.HasPrefix(order.field, "Value") {
			return cmp.Compare(right, left)
		}
		return cmp.Compare(a[order.field], b[order.field])
	})
	places := c.widths(body, columns, rows)
	for i, col := range columns {
		c.text(c.title, places[i].x, body.y+10, 0, places[i].w, named["blue"], col.title)
	}
	for r, one := range rows {
		y := body.y + 18 + float64(r)*24
		if y+24 > body.y+body.h {
			c.text(c.small, body.x+body.w, body.y+body.h+6, 1, 0, gray, fmt.Sprintf("1-%d of %d rows", r, len(rows)))
			break
		}
		c.rect(box{body.x, y, body.w, 1}, unused)
		for i, col := range columns {
			c.cell(box{places[i].x, y + 4, places[i].w, 17}, p, col, one[col.field])
		}
	}
}

// widths returns the places of columns, which share the width by what they need.
func (c *canvas) widths(body box, columns []column, rows []row) []box {
	needs, sum := make([]float64, len(columns)), 0.0
	for i, col := range columns {
		needs[i] = width(c.title, col.title)
		for _, one := range rows {
			needs[i] = math.Max(needs[i], width(c.normal, one[col.field]))
		}
		if strings.HasPrefix(col.field, "Value") {
			needs[i] = math.Max(width(c.title, col.title), 70)
		}
		if col.bar > 0 {
			needs[i] = 150
		}
		sum += needs[i] + 16
	}
	places, x := make([]box, len(columns)), body.x
	for i, need := range needs {
		all := (need + 16) * body.w / sum
		places[i] = box{x: x, w: all - 16}
		x += all
	}
	return places
}

// cell writes a label or a value.
func (c *canvas) cell(place box, p panel, col column, text string) {
	value, err := strconv.ParseFloat(text, 64)
	if err == nil && strings.HasPrefix(col.field, "Value") {
		text = format(cmp.Or(col.unit, p.FieldConfig.Defaults.Unit), value)
		if col.bar > 0 {
			bar := place.inset(0, 2, 62, 2)
			c.rect(bar, unused)
			bar.w *= math.Min(value/col.bar, 1)
			c.rect(bar, mix(value/col.bar, blues...))
			c.text(c.normal, place.x+place.w, place.y+13, 1, 0, ink, text)
			return
		}
	}
	c.text(c.normal, place.x, place.y+13, 0, place.w, ink, text)
}
