package drawing

import (
	"math"
	"time"
)

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

// grid draws the axes of values and of time.
func (c *canvas) grid(plot box, axis scale, span Span) {
	c.ticks(plot, axis, false)
	c.hours(plot, span)
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

func (c *canvas) hours(plot box, span Span) {
	every := time.Hour
	if plot.w < 300 {
		every = 2 * time.Hour
	}
	for hour := span.From.Truncate(time.Hour); !hour.After(span.To); hour = hour.Add(every) {
		x := span.x(plot, hour.UnixMilli())
		if x < plot.x-1 {
			continue
		}
		c.text(c.small, math.Min(x, plot.x+plot.w-14), plot.y+plot.h+15, 0.5, 0, gray, hour.Format("15:04"))
	}
}
