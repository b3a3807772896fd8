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

// outcome is what a phase has found out.
type outcome struct {
	Figures []figure
	Tallies []tally
}

// figure is one row of the table of goals.
type figure struct {
	// Name is the key in theirs; that of ready and the floor also lets a ratio be formed.
	Name name
	// What was measured.
	What string
	// Goal in words; empty: there is none.
	Goal string
	// Met tells whether the goal was reached.
	Met bool
	// Measured in words, and Value the same as a number where it is one.
	Measured string
	Value    float64
}

// verdict is empty where there is no goal.
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

// unit is how a number is told.
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

func (u unit) tell(value float64) string {
	return strconv.FormatFloat(value, 'f', u.digits, 64) + u.name
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func inMegabytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// plain is a figure without a goal.
func plain(name name, what string, value float64, u unit) figure {
	return figure{Name: name, What: what, Measured: u.tell(value), Value: value}
}

// atMost is a figure that must not be above the limit; a negative limit is none.
func atMost(name name, what string, value, limit float64, u unit) figure {
	f := plain(name, what, value, u)
	if limit < 0 {
		return f
	}
	f.Goal, f.Met = "at most "+u.tell(limit), value <= limit
	if limit == 0 {
		f.Goal = u.tell(limit)
	}
	return f
}

// tally counts what was asked of the API server.
type tally struct {
	// What happened.
	What string
	// Writes without Leases and Events; Events; and Lists.
	Writes, Events, Lists int
	// Detail of the writes by verb and resource, and of the reads.
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

// byKind counts calls by verb, resource and subresource, the most frequent first.
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
