package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// workflow has the fields of a workflow of GitHub that the tests check.
type workflow struct {
	Permissions *map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Uses        string            `json:"uses"`
		Strategy    struct {
			Matrix struct {
				Include []struct {
					Run string `json:"run"`
				} `json:"include"`
			} `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// pinnedAction matches an action at a commit and a workflow of the repository.
var pinnedAction = regexp.MustCompile(`^([\w.-]+/[\w./-]+@[0-9a-f]{40}|\./\.github/workflows/[\w-]+\.yml)$`)

// problemsOf returns what is wrong with a workflow: write access for all its jobs, actions that others could replace,
// and commands of make that do not exist.
func problemsOf(w workflow, commands check) (problems []string) {
	if w.Permissions == nil {
		problems = append(problems, "permissions are not limited")
	} else {
		for scope, access := range *w.Permissions {
			if access != "read" {
				problems = append(problems, fmt.Sprintf("all jobs may %s %s", access, scope))
			}
		}
	}
	for _, job := range w.Jobs {
		used := []string{job.Uses}
		for _, part := range job.Strategy.Matrix.Include {
			problems = append(problems, commands(snippet{text: part.Run})...)
		}
		for _, step := range job.Steps {
			used = append(used, step.Uses)
			problems = append(problems, commands(snippet{text: step.Run})...)
		}
		for _, action := range used {
			if action != "" && !pinnedAction.MatchString(action) {
				problems = append(problems, action+" is not pinned")
			}
		}
	}
	return problems
}

func TestWorkflowsAreSound(t *testing.T) {
	g := NewWithT(t)
	commands := targetsOf(read(t, "Makefile"), "")
	files, err := filepath.Glob(filepath.Join(repo, ".github/workflows/*.yml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(3))
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		w := workflow{}
		g.Expect(yaml.Unmarshal(text, &w)).To(Succeed())
		g.Expect(w.Jobs).NotTo(BeEmpty(), file)
		g.Expect(problemsOf(w, commands)).To(BeEmpty(), file)
	}
}

func TestUnsoundWorkflowsAreFound(t *testing.T) {
	g := NewWithT(t)
	w := workflow{}
	g.Expect(yaml.Unmarshal([]byte(`{permissions: {contents: write}, jobs: {a: {steps: [{uses: "a/b@v1"}, `+
		`{uses: "actions/checkout@v4"}, {run: make nothing}], strategy: {matrix: {include: [{run: make never}]}}}}}`), &w)).
		To(Succeed())
	g.Expect(problemsOf(w, targetsOf("build:\n", ""))).To(ConsistOf("all jobs may write contents",
		"a/b@v1 is not pinned", "actions/checkout@v4 is not pinned", ContainSubstring("nothing"), ContainSubstring("never")))
	g.Expect(problemsOf(workflow{}, nil)).To(ConsistOf("permissions are not limited"))
}
