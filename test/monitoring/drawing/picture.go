package drawing

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"strings"
	"time"
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

// Span is the time of a picture.
type Span struct {
	From, To time.Time
	// Step is the time between two points of a series.
	Step time.Duration
}

func (s Span) length() time.Duration { return s.To.Sub(s.From) }

// x returns the place of a time, in milliseconds since 1970, in a plot.
func (s Span) x(plot box, at int64) float64 {
	return plot.x + plot.w*float64(at-s.From.UnixMilli())/float64(s.length().Milliseconds())
}

// Series is a result of a query: a value, or several over time, never none.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a time in milliseconds since 1970.
type Point struct {
	At    int64
	Value float64
}

// series is a result of the panel's query of this number, with its name in the legend.
type series struct {
	query  int
	name   string
	labels map[string]string
	points []Point
}

func (s series) last() float64 { return s.points[len(s.points)-1].Value }

// Draw returns the picture of a dashboard. ask returns the results of a query. A panel without any results, or of an
// unknown kind, is an error; the picture has the other panels.
func Draw(b Board, span Span, ask func(Target) []Series) (image.Image, error) {
	rows := 0
	for _, p := range b.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	const head = 44
	c, err := newCanvas(pageWidth, head+rows*rowHeight+gap, page)
	if err != nil {
		return nil, err
	}
	c.text(c.title, 12, 26, 0, 0, ink, b.Title)
	c.text(c.normal, pageWidth-12, 26, 1, 0, gray,
		fmt.Sprintf("%s to %s UTC", span.From.Format("2006-01-02 15:04"), span.To.Format("15:04")))
	column := float64(pageWidth-gap) / 24
	var faults []error
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
		faults = append(faults, c.panel(place, p, results(p, ask), span))
	}
	return c, errors.Join(faults...)
}

// results asks a panel's queries.
func results(p Panel, ask func(Target) []Series) []series {
	var list []series
	for i, q := range p.Targets {
		for _, found := range ask(q) {
			list = append(list, series{i, legend(q.LegendFormat, found.Labels), found.Labels, found.Points})
		}
	}
	return list
}

// legend replaces {{label}} by the label's value.
func legend(format string, l map[string]string) string {
	for name, value := range l {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
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
func (c *canvas) panel(place box, p Panel, list []series, span Span) error {
	if len(list) == 0 {
		return fmt.Errorf("%q is empty", p.Title)
	}
	body := place.inset(10, 32, 10, 10)
	if p.Type != "stat" {
		c.text(c.title, place.x+10, place.y+20, 0, place.w-20, ink, p.Title)
	}
	switch p.Type {
	case "stat":
		c.stat(place, p, list)
	case "timeseries":
		c.timeseries(body, p, list, span)
	case "heatmap":
		c.cells(body, list, span, func(v, highest float64) color.RGBA { return mix(math.Sqrt(v/highest), oranges...) }, true)
	case "status-history":
		high := *p.FieldConfig.Defaults.Max
		c.cells(body, list, span, func(v, _ float64) color.RGBA { return mix(v/high, blues...) }, false)
	case "state-timeline":
		c.cells(body, list, span, func(v, _ float64) color.RGBA { return p.threshold(v) }, false)
	case "bargauge":
		c.bars(body, p, list)
	case "table":
		c.table(body, p, list)
	default:
		return fmt.Errorf("%q: the kind %s cannot be drawn", p.Title, p.Type)
	}
	return nil
}

// threshold returns the color of a value.
func (p Panel) threshold(value float64) color.RGBA {
	chosen := named["gray"]
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			chosen = named[step.Color]
		}
	}
	return chosen
}
