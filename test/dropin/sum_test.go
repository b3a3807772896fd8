package dropin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
)

// group is a kind of lines.
type group string

const (
	patchLines     group = "JSON patches"
	valueLines     group = "values"
	policyLines    group = "ClusterPolicies"
	renderingLines group = "objects"
	nameLines      group = "names"
	besideLines    group = "beside NVIDIA's"
)

// groups are in the order in which they are printed.
var groups = []group{patchLines, valueLines, policyLines, renderingLines, nameLines, besideLines}

// counts are the rows whose check passed, by verdict, and all others.
type counts struct {
	honoured, ignored, refused int
	// excuses of the refused rows.
	excuses map[excuse]int
	// failed rows have another verdict than in the table; those of all that are not tried need TEST_FULL=1.
	failed, all int
}

func (c *counts) add(r row) {
	switch r.verdict {
	case honoured:
		c.honoured++
	case ignored:
		c.ignored++
	case refused:
		c.refused++
		c.excuses[r.because]++
	}
}

func (c counts) plus(d counts) counts {
	excuses := map[excuse]int{}
	for _, some := range []map[excuse]int{c.excuses, d.excuses} {
		for name, count := range some {
			excuses[name] += count
		}
	}
	return counts{
		excuses: excuses, honoured: c.honoured + d.honoured, ignored: c.ignored + d.ignored, refused: c.refused + d.refused,
		failed: c.failed + d.failed, all: c.all + d.all,
	}
}

// sum has what the rows of this run asserted. Tests add to it at the same time.
type sum struct {
	mutex sync.Mutex
	of    map[group]counts
}

var total = sum{of: map[group]counts{}}

func (s *sum) add(of group, more counts) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.of[of] = s.of[of].plus(more)
}

// print writes a line for each group, and the sum of all.
func (s *sum) print(out io.Writer) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "lines of NVIDIA's users\t%s\t%s\t%s\tfailed\ttried\tin the tables\n", honoured, ignored, refused)
	all := counts{}
	for _, of := range groups {
		all = all.plus(s.of[of])
		s.of[of].print(w, string(of))
	}
	all.print(w, "total")
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all.excuses)) {
		fmt.Fprintf(out, "refused, as it %s: %d\n", name, all.excuses[name])
	}
	return nil
}

func (c counts) print(w io.Writer, name string) {
	tried := c.honoured + c.ignored + c.refused + c.failed
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", name, c.honoured, c.ignored, c.refused, c.failed, tried, c.all)
}
