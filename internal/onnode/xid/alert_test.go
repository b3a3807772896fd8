package xid

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
)

// The alerts about Xids that the exporter reports have the numbers of this table.
func TestAlertsHaveTheXidsOfTheTable(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../../config/monitoring/alerts.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	critical, contained := []int{}, []int{}
	for _, rule := range Table() {
		switch rule.Class {
		case gpuhealth.Reset, gpuhealth.Reboot, gpuhealth.Hardware:
			critical = append(critical, rule.Numbers...)
		default:
			if rule.Reason == "GPUMemoryErrorContained" {
				contained = append(contained, rule.Numbers...)
			}
		}
	}
	g.Expect(xidsOf(g, string(text), "GPUXidFault")).To(Equal(slices.Sorted(slices.Values(critical))))
	g.Expect(xidsOf(g, string(text), "GPUMemoryErrorContained")).To(Equal(contained))
}

// xidsOf returns the numbers in the expression of an alert.
func xidsOf(g *WithT, text, alert string) []int {
	_, rule, found := strings.Cut(text, "- alert: "+alert+"\n")
	g.Expect(found).To(BeTrue(), alert)
	match := regexp.MustCompile(`xid=~?"([0-9|]+)"`).FindStringSubmatch(rule)
	g.Expect(match).NotTo(BeNil(), alert)
	var numbers []int
	for number := range strings.SplitSeq(match[1], "|") {
		value, err := strconv.Atoi(number)
		g.Expect(err).NotTo(HaveOccurred())
		numbers = append(numbers, value)
	}
	return numbers
}
