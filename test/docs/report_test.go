package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

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

var (
	writtenPart  = regexp.MustCompile(`(?s)<!-- ([^\n]+): written by [^\n]+ -->\n(.*?)<!-- end of `)
	namedCommits = regexp.MustCompile("[Cc]ommit `?([0-9a-f]{7,40}(?:-dirty)?(?:, )?)+")
	oneCommit    = regexp.MustCompile("[0-9a-f]{7,40}(-dirty)?")
)

// What takes hours is measured for a release and each night, not for each commit, whose result must not depend on the
// date: hence make verify-reports.
func TestReportsAreRecent(t *testing.T) {
	const most, days = 200, 14
	if os.Getenv("VERIFY_REPORTS") == "" {
		t.Skip("make verify-reports runs it")
	}
	git := func(arguments ...string) string {
		output, err := exec.Command("git", append([]string{"-C", repo}, arguments...)...).CombinedOutput()
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(output))
		return strings.TrimSpace(string(output))
	}
	for page, required := range map[string][]string{
		"docs/test-report.md": {"campaign", "mutants"}, "docs/benchmarks.md": {"summary"},
	} {
		var parts []string
		for _, part := range writtenPart.FindAllStringSubmatch(read(t, page), -1) {
			parts = append(parts, part[1])
			t.Run(page+"/"+part[1], func(t *testing.T) {
				g := NewWithT(t)
				commits := oneCommit.FindAllString(strings.Join(namedCommits.FindAllString(part[2], -1), " "), -1)
				if part[1] != "summary" { // It sums up the parts that follow it.
					g.Expect(commits).NotTo(BeEmpty())
				}
				for _, commit := range commits {
					g.Expect(commit).NotTo(HaveSuffix("-dirty"))
					since, err := strconv.Atoi(git("rev-list", "--count", commit+"..HEAD"))
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(since).To(BeNumerically("<=", most), "commits since %s", commit)
					seconds, err := strconv.ParseInt(git("log", "-1", "--format=%ct", commit), 10, 64)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(time.Since(time.Unix(seconds, 0))).To(BeNumerically("<=", days*24*time.Hour), "since %s", commit)
				}
			})
		}
		NewWithT(t).Expect(parts).To(ContainElements(required), page)
	}
}
