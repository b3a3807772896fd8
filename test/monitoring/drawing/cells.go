package drawing

import (
	"image/color"
	"math"
)

// cells draws one row per series, the first at the bottom if upwards, with a cell per step in the color of its value.
func (c *canvas) cells(body box, list []series, span Span, paint func(value, highest float64) color.RGBA, upwards bool) {
	left, highest := 0.0, 1e-9
	for _, s := range list {
		left = math.Max(left, width(c.small, s.name))
		for _, point := range s.points {
			highest = math.Max(highest, point.Value)
		}
	}
	plot := body.inset(left+10, 0, 4, 18)
	height := plot.h / float64(len(list))
	c.rect(plot, hex("#fafafa"))
	cell := plot.w*float64(span.Step.Milliseconds())/float64(span.length().Milliseconds()) + 0.6
	for i, s := range list {
		y := plot.y + float64(i)*height
		if upwards {
			y = plot.y + float64(len(list)-1-i)*height
		}
		c.text(c.small, plot.x-6, y+height/2+4, 1, 0, gray, s.name)
		for _, point := range s.points {
			if point.Value == 0 && upwards {
				continue
			}
			x := span.x(plot, point.At)
			c.rect(box{x, y + 0.5, math.Min(cell, plot.x+plot.w-x), height - 1}, paint(point.Value, highest))
		}
	}
	c.hours(plot, span)
}
