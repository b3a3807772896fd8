package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

// TestSettingsAreKeptApart: each combination has its own file and its own heading.
func TestSettingsAreKeptApart(t *testing.T) {
	g := NewWithT(t)
	files, titles := map[string]setting{}, map[string]setting{}
	for _, how := range []stages{realistic, fast, delayed} {
		for _, plane := range []controlPlane{tuned, untuned, minimal} {
			for _, beside := range []string{"", "another 1.0"} {
				for _, policy := range []string{"", "x/nfd.yaml"} {
					s := setting{Stages: how, ControlPlane: plane, Other: beside, Policy: policy}
					file, title := keptFile("", s, 100), s.title(100)
					g.Expect(files).NotTo(HaveKey(file))
					g.Expect(titles).NotTo(HaveKey(title))
					files[file], titles[title] = s, s
				}
			}
		}
	}
	g.Expect(files).To(HaveKey("100.json"))
	g.Expect(files).To(HaveKey("100-delayed-default.json"))
	g.Expect(files).To(HaveKey("100-delayed-default-nfd.json"))
	g.Expect(titles).To(HaveKey("100 nodes, delayed stages, untuned control plane, nfd"))
	g.Expect(titles).To(HaveKey("100 nodes, delayed stages, untuned control plane"))
}
