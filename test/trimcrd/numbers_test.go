package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
)

func TestQuantitiesAreBounded(t *testing.T) {
	g := NewWithT(t)
	pattern := regexp.MustCompile(undecodable.Quantity)
	for _, quantity := range []string{
		"0", "100m", "1.5", ".5", "5.", "+1", "-1", "128Mi", "1e3", "12E-3", "2E", "1e+18", "1e-09", "1e0",
		"18446744073709551615", "3n",
	} {
		g.Expect(pattern.MatchString(quantity)).To(BeTrue(), quantity)
	}
	for _, quantity := range []string{
		"", "1e-99999999999", "1e100", "1e99", "1e19", "1E-19", "1e018", "1e1.5", "1e.5", "1KiB", "1 Mi",
		"one", strings.Repeat("1", 21), "0." + strings.Repeat("1", 21),
	} {
		g.Expect(pattern.MatchString(quantity)).To(BeFalse(), quantity)
	}
}

// The operator decodes each stored object, with hundreds of quantities: the longest ones that the pattern admits take
// seconds at most, not minutes.
func TestBoundedQuantitiesAreDecoded(t *testing.T) {
	g := NewWithT(t)
	pattern, digits := regexp.MustCompile(undecodable.Quantity), strings.Repeat("9", 20)
	for _, exponent := range []string{"", "e18", "e-18", "E+18", "n", "u", "E", "Ei"} {
		for _, mantissa := range []string{digits, digits + "." + digits, "." + digits, "." + strings.Repeat("0", 19) + "1"} {
			quantity := mantissa + exponent
			g.Expect(pattern.MatchString(quantity)).To(BeTrue(), quantity)
			begin := time.Now()
			_, err := resource.ParseQuantity(quantity)
			g.Expect(err).NotTo(HaveOccurred(), quantity)
			g.Expect(time.Since(begin)).To(BeNumerically("<", 10*time.Second), quantity)
		}
	}
}

func TestBoundNumbers(t *testing.T) {
	g := NewWithT(t)
	const numberOrText = "x-kubernetes-int-or-string"
	schema := func(quantity string, number map[string]any) map[string]any {
		return map[string]any{"properties": map[string]any{
			"limits": map[string]any{"additionalProperties": map[string]any{"pattern": quantity, numberOrText: true}},
			"list":   map[string]any{"allOf": []any{number}},
			"name":   map[string]any{"pattern": "^a$", "type": "string"},
		}}
	}
	bounded := schema(foreignQuantity, map[string]any{"pattern": "^a$", numberOrText: true})
	boundNumbers(bounded)
	g.Expect(bounded).To(Equal(schema(undecodable.Quantity, map[string]any{
		"pattern": "^a$", numberOrText: true, "minimum": -2147483648, "maximum": 2147483647,
	})))
}

// The definitions have no other pattern of quantities, such as one of a later release of the generator.
func TestNoDefinitionAdmitsAnyExponent(t *testing.T) {
	g := NewWithT(t)
	for _, file := range []string{"nvidia.com_clusterpolicies.yaml", "nvidia.com_nvidiadrivers.yaml"} {
		text, err := os.ReadFile("../../config/crd/bases/" + file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).To(ContainSubstring(undecodable.Quantity))
		g.Expect(strings.Count(string(text), "[KMGTPE]")).To(Equal(strings.Count(string(text), undecodable.Quantity)), file)
	}
}
