package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func TestParseFeatures(t *testing.T) {
	tests := map[string]struct {
		content string
		want    map[string]string
		ignored []string
	}{
		"takes labels, ignores comments and empty lines": {
			content: "# +expiry-time=x\n\nnvidia.com/gpu.count=8\r\n  nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3\n" +
				"nvidia.com/cuda.driver.rev=",
			want: map[string]string{
				"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/cuda.driver.rev": "",
			},
		},
		"leaves out labels that control the node": {
			content: "nvidia.com/gpu.deploy.driver=false\nnvidia.com/gpu.present=false\nnvidia.com/mig.config=all-1g.10gb\n" +
				"nvidia.com/mig.capable=true\nfeature.node.kubernetes.io/pci-10de.present=true\n",
			want: map[string]string{"nvidia.com/mig.capable": "true"},
			ignored: []string{
				"nvidia.com/gpu.deploy.driver=false", "nvidia.com/gpu.present=false", "nvidia.com/mig.config=all-1g.10gb",
				"feature.node.kubernetes.io/pci-10de.present=true",
			},
		},
		"leaves out invalid labels": {
			content: "nvidia.com/gpu.machine=DGX A100\nnvidia.com/gpu.count\nnvidia.com/mig-1g 5gb.count=1\n" +
				"nvidia.com/mig-" + strings.Repeat("1", 60) + "=1\nnvidia.com/gpu.product=-x\n=\nnvidia.com/cuda.x-=1\n",
			want: map[string]string{},
			ignored: []string{
				"nvidia.com/gpu.machine=DGX A100", "nvidia.com/gpu.count", "nvidia.com/mig-1g 5gb.count=1",
				"nvidia.com/mig-" + strings.Repeat("1", 60) + "=1", "nvidia.com/gpu.product=-x", "=", "nvidia.com/cuda.x-=1",
			},
		},
		"takes the last line of a key": {
			content: "nvidia.com/gpu.count=8\nnvidia.com/gpu.count=7\n", want: map[string]string{"nvidia.com/gpu.count": "7"},
		},
		"takes nothing from nothing": {content: "", want: map[string]string{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, ignored := parseFeatures(tc.content)
			g.Expect(got).To(Equal(tc.want))
			g.Expect(ignored).To(Equal(tc.ignored))
		})
	}
}

func TestFeatures(t *testing.T) {
	const eight = "nvidia.com/gpu.count=8\n"
	type step struct {
		after   time.Duration
		content string // "-" removes the file, "dir" makes a directory of it.
		noGPU   bool

		want    map[string]string
		kept    bool
		left    time.Duration
		problem string
	}
	count := map[string]string{"nvidia.com/gpu.count": "8"}
	none := map[string]string{}
	tests := map[string][]step{
		"labels outlive the file for the time that is set": {
			{content: eight, want: count},
			{after: time.Hour, content: "-", want: none, kept: true, left: 10 * time.Minute},
			{after: 9 * time.Minute, content: "-", want: none, kept: true, left: time.Minute},
			{after: time.Minute, content: "-", want: none},
			{after: time.Hour, content: "-", want: none},
			{content: eight, want: count},
			{content: "-", want: none, kept: true, left: 10 * time.Minute},
		},
		"an empty file counts as missing": {
			{content: eight, want: count},
			{content: "# about to be written\n", want: none, kept: true, left: 10 * time.Minute},
			{after: 10 * time.Minute, content: "", want: none},
		},
		"without a GPU the file is ignored": {
			{content: eight, want: count},
			{content: eight, noGPU: true, want: none},
			{content: "-", noGPU: true, want: none},
			{content: "-", want: none, kept: true, left: 10 * time.Minute},
		},
		"labels that cannot be read stay, however long": {
			{content: eight, want: count},
			{after: time.Hour, content: "dir", want: none, kept: true, problem: "and are left unchanged: read "},
		},
		"a file that is too large is not read": {
			{
				content: strings.Repeat("nvidia.com/gpu.count=8\n", 4000),
				want:    none,
				kept:    true,
				problem: "has more than 65536 bytes",
			},
		},
		"a line that is no label is named": {
			{
				content: eight + "nvidia.com/gpu.present=true\nx\n", want: count,
				problem: `has 2 lines that are not labels of GPU Feature Discovery, so they are left out; one is ` +
					`"nvidia.com/gpu.present=true"`,
			},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			path := filepath.Join(t.TempDir(), "gfd")
			f := features{path: path, keep: 10 * time.Minute, now: func() time.Time { return now }}
			for i, step := range steps {
				g := NewWithT(t)
				now = now.Add(step.after)
				g.Expect(os.RemoveAll(path)).To(Succeed())
				switch step.content {
				case "-":
				case "dir":
					g.Expect(os.Mkdir(path, 0o700)).To(Succeed())
				default:
					g.Expect(os.WriteFile(path, []byte(step.content), 0o600)).To(Succeed())
				}
				findings := Findings{Labels: map[string]string{}, NoGPU: step.noGPU}
				left := f.add(&findings)
				g.Expect(findings.Labels).To(Equal(step.want), "step %d", i)
				g.Expect(findings.KeepFeatures).To(Equal(step.kept), "step %d", i)
				g.Expect(left).To(Equal(step.left), "step %d", i)
				if step.problem == "" {
					g.Expect(findings.Problems).To(BeEmpty(), "step %d", i)
				} else {
					g.Expect(findings.Problems).To(ConsistOf(ContainSubstring(step.problem)), "step %d", i)
				}
			}
		})
	}
}

func FuzzParseFeatures(f *testing.F) {
	f.Add("nvidia.com/gpu.count=8\n# x\n\nnvidia.com/gpu.product=NVIDIA-H100\n")
	f.Add("nvidia.com/gpu.deploy.driver=false\nnvidia.com/mig-1g.10gb.count=7\r\n")
	f.Add("=\n==\nnvidia.com/\x00=\nnvidia.com/cuda.=1")
	f.Fuzz(func(t *testing.T, content string) {
		g := NewWithT(t)
		found, ignored := parseFeatures(content)
		g.Expect(len(found) + len(ignored)).To(BeNumerically("<=", strings.Count(content, "\n")+1))
		// The API server refuses all labels together with an invalid one.
		for key, value := range found {
			g.Expect(labels.IsFeature(key)).To(BeTrue(), key)
			g.Expect(validation.IsQualifiedName(key)).To(BeEmpty())
			g.Expect(validation.IsValidLabelValue(value)).To(BeEmpty())
		}
	})
}
