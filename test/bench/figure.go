package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// outcome is the result of a phase.
type outcome struct {
	Figures []figure
	Tallies []tally
}

// figure is one row of the table of goals.
type figure struct {
	// Name identifies figures that are used for ratios.
	Name name
	// What describes what was measured.
	What string
	// Goal is the text of the goal; empty if there is none.
	Goal string
	// Met reports whether the goal was reached.
	Met bool
	// Beside is the text of the same of another operator; empty if it was not measured.
	Beside string `json:",omitempty"`
	// Measured is the text of the result, and Value its number if it is one.
	Measured string
	Value    float64
}

// verdict returns whether the goal was met; empty without a goal.
func (f figure) verdict() string {
	switch {
	case f.Goal == "":
		return ""
	case f.Met:
		return "met"
	default:
		return "missed"
	}
}

// unit is the format of a number.
type unit struct {
	name   string
	digits int
}

var (
	seconds      = unit{" s", 1}
	hundredths   = unit{" s", 2}
	milliseconds = unit{" ms", 1}
	megabytes    = unit{" MB", 0}
	count        = unit{"", 0}
	times        = unit{"", 2}
)

func (u unit) format(value float64) string {
	return strconv.FormatFloat(value, 'f', u.digits, 64) + u.name
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func inMegabytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// plain returns a figure without a goal.
func plain(name name, what string, value float64, u unit) figure {
	return figure{Name: name, What: what, Measured: u.format(value), Value: value}
}

// atMost returns a figure that must not exceed the limit; a negative limit is none.
func atMost(what string, value, limit float64, u unit) figure {
	f := plain(other, what, value, u)
	if limit < 0 {
		return f
	}
	f.Goal, f.Met = "at most "+u.format(limit), value <= limit
	if limit == 0 {
		f.Goal = u.format(limit)
	}
	return f
}

// tally counts requests to the API server.
type tally struct {
	// What describes the event.
	What string
	// Writes without Leases and Events; Events; and Lists.
	Writes, Events, Lists int
	// Details of the writes and of the reads, by verb and resource.
	Detail, Reads string
}

func tallyOf(what string, calls cluster.Calls) tally {
	writes := calls.Writes()
	reads := slices.DeleteFunc(slices.Clone(calls), func(call cluster.Call) bool {
		return call.Resource == "leases" || call.Verb != "get" && call.Verb != "list" && call.Verb != "watch"
	})
	return tally{
		What: what, Writes: len(writes), Events: len(calls.Events()), Lists: len(calls.Lists()),
		Detail: byKind(writes), Reads: byKind(reads),
	}
}

// byKind counts requests by verb, resource and subresource, the most frequent first.
func byKind(calls cluster.Calls) string {
	counts := map[string]int{}
	for _, call := range calls {
		counts[call.Verb+" "+strings.TrimSuffix(call.Resource+"/"+call.Subresource, "/")]++
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", kind, counts[kind])
	}
	return strings.Join(kinds, ", ")
}
