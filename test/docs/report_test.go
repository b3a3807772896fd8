package docs

import (
	"regexp"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	sumOfPoints = regexp.MustCompile(`(?m)^Points: (\d+) of (\d+) run, \*\*(\d+) failed\*\*; in (\d+) the fault`)
	rowOfPoints = regexp.MustCompile(`(?m)^\| \w\d+ \| .* \| (\d+) of (\d+) \| (\d+) \| (\d+) \|`)
)

// The sum of the report of the campaign is that of its rows, also after a row was run again.
func TestSumOfTheTestReport(t *testing.T) {
	g := NewWithT(t)
	text := read(t, "docs/test-report.md")
	sum := sumOfPoints.FindStringSubmatch(text)
	g.Expect(sum).NotTo(BeNil(), "the report has no sum")
	var rows [4]int
	for _, row := range rowOfPoints.FindAllStringSubmatch(text, -1) {
		for i := range rows {
			n, err := strconv.Atoi(row[1+i])
			g.Expect(err).NotTo(HaveOccurred())
			rows[i] += n
		}
	}
	passed, all, failed, without := rows[0], rows[1], rows[2], rows[3]
	g.Expect(sum[1:]).To(HaveExactElements(strconv.Itoa(passed+failed+without), strconv.Itoa(all), strconv.Itoa(failed),
		strconv.Itoa(without)))
}
