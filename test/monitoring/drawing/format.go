package drawing

import (
	"math"
	"strconv"
	"strings"
)

// show returns a value as the panel shows it.
func (p Panel) show(value float64) string {
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
		"watt": "W", "watth": "Wh", "hertz": "Hz", "bytes": "iB", "binBps": "iB/s", "ops": "ops/s", "wps": "wr/s", "reqps": "req/s",
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
