package drawing

import (
	"cmp"
	"image/color"
	"math"
	"slices"
)

// timeseries draws lines, or areas on top of each other, with the legend at the right.
func (c *canvas) timeseries(body box, p Panel, list []series, span Span) {
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
				highestRight = math.Max(highestRight, point.Value)
			case stacked:
				sums[point.At] += point.Value
				highest = math.Max(highest, sums[point.At])
			default:
				highest = math.Max(highest, point.Value)
			}
		}
	}
	axis := scaleOf(p.FieldConfig.Defaults.Unit, highest)
	if len(right) > 0 {
		plot.w -= 46
	}
	c.grid(plot, axis, span)
	below := map[int64]float64{}
	for i, s := range list {
		ink := palette[i%len(palette)]
		scale := axis
		if unit := right[s.name]; unit != "" {
			scale = scaleOf(unit, highestRight)
			c.ticks(plot, scale, true)
		}
		c.series(plot, p, s, scale, below, ink, span)
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
func (p Panel) rightAxis() map[string]string {
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

// series draws one, with gaps where it has no values.
func (c *canvas) series(
	plot box, p Panel, s series, axis scale, below map[int64]float64, ink color.RGBA, span Span,
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
		if i > 0 && point.At-s.points[i-1].At > 2*span.Step.Milliseconds() {
			flush()
		}
		base := 0.0
		if stacked {
			base = below[point.At]
			below[point.At] += point.Value
		}
		top = append(top, [2]float64{span.x(plot, point.At), y(base + point.Value)})
		bottom = append(bottom, [2]float64{span.x(plot, point.At), y(base)})
	}
	flush()
}
