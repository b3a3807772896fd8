package drawing

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// row of a table, by field.
type row map[string]string

// merged joins the results of several queries as Grafana's transformation merge does: rows that agree in all fields
// that every result has are one, unless they differ in another field.
func merged(p Panel, list []series) []row {
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
func framesOf(p Panel, list []series) ([][]row, map[string]int) {
	frames, fields := make([][]row, len(p.Targets)), map[string]int{}
	for i := range p.Targets {
		seen := map[string]bool{}
		for _, s := range list {
			if s.query != i {
				continue
			}
			one := row{}
			for name, value := range s.labels {
				one[name], seen[name] = value, true
			}
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
	// words are shown instead of values.
	words map[string]string
}

func (p Panel) columns() []column {
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
				case "mappings":
					list[i].words = wordsOf(property.Value)
				case "max":
					list[i].bar, _ = property.Value.(float64)
				}
			}
		}
	}
	return list
}

// wordsOf returns the texts of a list of value mappings.
func wordsOf(mappings any) map[string]string {
	found := map[string]string{}
	list, _ := mappings.([]any)
	for _, mapping := range list {
		fields, _ := mapping.(map[string]any)
		options, _ := fields["options"].(map[string]any)
		for value, option := range options {
			result, _ := option.(map[string]any)
			found[value], _ = result["text"].(string)
		}
	}
	return found
}

func (c *canvas) table(body box, p Panel, list []series) {
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
func (c *canvas) cell(place box, p Panel, col column, text string) {
	value, err := strconv.ParseFloat(text, 64)
	if word, mapped := col.words[text]; mapped {
		text = word
	} else if err == nil && strings.HasPrefix(col.field, "Value") {
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
