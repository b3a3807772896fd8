package drawing

import "math"

// stat draws the current value, or those of several series below each other, on their colors.
func (c *canvas) stat(place box, p Panel, list []series) {
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

// bars draws the current value of each series.
func (c *canvas) bars(body box, p Panel, list []series) {
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
