package campaign

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// bug is a bug in the operator that the campaign must detect, stored as a patch.
type bug struct {
	name string
	path string
	// what describes it, point is the one that must detect it, and expect is part of its violation.
	what, point, expect string
	// files are the paths in the repository that the patch changes.
	files []string
}

var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(.+)$`)

// seededBugs returns the patches in the folder bugs.
func seededBugs() ([]bug, error) {
	paths, err := filepath.Glob("bugs/*.patch")
	if err != nil {
		return nil, err
	}
	var bugs []bug
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		b := bug{name: strings.TrimSuffix(filepath.Base(path), ".patch"), path: absolute}
		head, _, _ := strings.Cut(string(text), "\n\n")
		for line := range strings.SplitSeq(head, "\n") {
			key, value, _ := strings.Cut(line, ": ")
			if field, known := map[string]*string{"What": &b.what, "Point": &b.point, "Expect": &b.expect}[key]; known {
				*field = value
			}
		}
		for _, match := range changedFile.FindAllStringSubmatch(string(text), -1) {
			b.files = append(b.files, match[1])
		}
		if b.what == "" || b.point == "" || b.expect == "" || len(b.files) == 0 {
			return nil, fmt.Errorf("%s: it must begin with What, Point and Expect, and change a file", path)
		}
		bugs = append(bugs, b)
	}
	return bugs, nil
}

// overlay writes the changed files and the overlay file for go build to dir. It fails if the patch does not apply.
func (b bug) overlay(dir string) (string, error) {
	root, err := filepath.Abs(repo)
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for _, name := range b.files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		copied := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(copied), 0o750); err != nil {
			return "", err
		}
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(root, name)] = copied
	}
	apply := exec.Command("git", "apply", b.path)
	apply.Dir = dir
	// Ignore a repository that contains the folder.
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apply bugs/%s.patch, which must be updated with the source: %w\n%s", b.name, err, out)
	}
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, encoded, 0o600)
}

// build compiles the operator with the bug.
func (b bug) build(dir string) (string, error) {
	overlay, err := b.overlay(dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "operator")
	command := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-overlay", overlay, "-o",
		binary, "./test/operator")
	command.Dir, command.Env = repo, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the operator with bugs/%s.patch: %w\n%s", b.name, err, out)
	}
	return binary, nil
}

// TestBugsApply: each seeded bug applies to the current source, and names a point of the campaign.
func TestBugsApply(t *testing.T) {
	g := NewWithT(t)
	bugs, err := seededBugs()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(bugs)).To(BeNumerically(">=", 20))
	for _, b := range bugs {
		_, err := b.overlay(t.TempDir())
		g.Expect(err).NotTo(HaveOccurred())
		_, err = rowOf(b.point)
		g.Expect(err).NotTo(HaveOccurred(), b.name)
	}
}

// TestBugsAreCaught: the campaign detects an operator with a bug. By default one bug is tried, selected by the seed.
func TestBugsAreCaught(t *testing.T) {
	if cluster.Sampled() {
		t.Skip("make test leaves this out; each run of make ci tries another bug")
	}
	g := NewWithT(t)
	_, err := cluster.EnsureBinaries(t.Context(), "", os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	bugs, err := seededBugs()
	g.Expect(err).NotTo(HaveOccurred())
	switch {
	case *flagBug != "":
		bugs = slices.DeleteFunc(bugs, func(b bug) bool { return b.name != *flagBug })
		g.Expect(bugs).NotTo(BeEmpty(), "no bug is selected")
	case !cluster.FullCampaigns():
		bugs = chance.Sample(t, "bugs", bugs, 1, func(b bug) string { return b.name })
	}
	binary, err := program(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	known, err := openResults(binary)
	g.Expect(err).NotTo(HaveOccurred())
	var caught atomic.Int64
	t.Run("bugs", func(t *testing.T) {
		for _, b := range bugs {
			name := bugPrefix + b.name
			if whole() && !*flagFresh && known.hasPassed(name) {
				caught.Add(1)
				continue
			}
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				catch(t, b)
				result := kept{Point: name, Verdict: passed}
				if t.Failed() {
					result.Verdict, result.Detail = failed, "not caught: "+b.what
				} else {
					caught.Add(1)
				}
				g.Expect(known.add(result)).To(Succeed())
			})
		}
	})
	t.Logf("seeded bugs: %d of %d are caught", caught.Load(), len(bugs))
}

func catch(t *testing.T, b bug) {
	t.Helper()
	g := NewWithT(t)
	binary, err := b.build(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	c := newCampaign(binary, 1)
	t.Cleanup(func() { g.Expect(c.close()).To(Succeed()) })
	r, err := rowOf(b.point)
	g.Expect(err).NotTo(HaveOccurred())
	violations, err := c.firstPoint(t, r, b.point)
	g.Expect(err).NotTo(HaveOccurred())
	for _, violation := range violations {
		if strings.Contains(violation, b.expect) {
			t.Logf("%s is caught: %.300s", b.name, violation)
			return
		}
	}
	t.Errorf("%s (%s) is not caught by %s: no violation has %q, among %d:\n%s", b.name, b.what, b.point, b.expect,
		len(violations), strings.Join(violations, "\n"))
}

// firstPoint runs the first point with this prefix. A violation of the undisturbed run counts too.
func (c *campaign) firstPoint(t *testing.T, r row, begins string) ([]string, error) {
	t.Helper()
	points, err := r.points(t.Context(), c)
	var disturbed *disturbedError
	if errors.As(err, &disturbed) {
		return disturbed.violations, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		if !strings.HasPrefix(r.id+"/"+p.name, begins) {
			continue
		}
		out, err := c.run(t.Context(), p)
		if errors.As(err, &disturbed) {
			return disturbed.violations, nil
		}
		return out.violations, err
	}
	return nil, fmt.Errorf("row %s has no point that begins with %s", r.id, begins)
}

// rowOf returns the row of a point.
func rowOf(point string) (row, error) {
	id, _, _ := strings.Cut(point, "/")
	for _, r := range rows() {
		if r.id == id && r.points != nil {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("the campaign has no row %s", id)
}

// disturbedError has the violations of an undisturbed run.
type disturbedError struct {
	workload   string
	violations []string
	logs       string
}

// Error implements error.
func (d *disturbedError) Error() string {
	return fmt.Sprintf("the undisturbed run of workload %s: %s\n%s", d.workload, strings.Join(d.violations, "\n"), d.logs)
}
