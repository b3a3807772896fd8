package previews

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// TestPreviewsAreWhatIsApplied: what render prints of a first installation, and what plan prints of it and of an edit,
// is what the operator then applies, or what differs was named.
func TestPreviewsAreWhatIsApplied(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	binaries, err := build(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	known, err := openResults(filepath.Join(repo, ".cache", "previews"), binaries.operator, binaries.plugin)
	g.Expect(err).NotTo(HaveOccurred())
	fields, err := specgen.Fields()
	g.Expect(err).NotTo(HaveOccurred())
	first := cmp.Or(*flagSeed, 1)
	if *flagSeed == 0 && *flagNum < allCases {
		first = 1 + chance.Of(t, "previews").Uint64N(allCases-*flagNum+1)
	}
	end := first + *flagNum
	t.Logf("cases of seeds %d to %d; to repeat one: go test ./test/previews -previews.cases=1 -previews.fresh "+
		"-previews.seed=SEED", first, end-1)
	begin, ran := time.Now(), atomic.Uint64{}
	t.Run("lanes", func(t *testing.T) {
		next := atomic.Uint64{}
		next.Store(first)
		for lane := range min(*flagLanes, *flagNum) {
			t.Run(strconv.FormatUint(lane, 10), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, binaries)
				for seed := next.Add(1) - 1; seed < end; seed = next.Add(1) - 1 {
					if cluster.FullCampaigns() && !*flagFresh && known.Of(seed).Passed ||
						*flagFor > 0 && time.Since(begin) > *flagFor {
						continue
					}
					ran.Add(1)
					t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
						c := &trial{world: w.in(t), scenario: newScenario(seed, fields), result: result{Seed: seed}}
						t.Cleanup(c.clear)
						c.run()
						c.result.Passed = !t.Failed()
						c.Expect(known.Add(c.result)).To(Succeed())
					})
				}
			})
		}
	})
	t.Logf("%d cases ran now in %s", ran.Load(), time.Since(begin).Round(time.Second))
	known.judge(t, first, end)
}

// judge logs the sum of the cases, and fails if too few of them were compared without any excuse.
func (r results) judge(t *testing.T, first, end uint64) {
	t.Helper()
	sum, passed, strict := result{}, 0, 0
	for seed := first; seed < end; seed++ {
		of := r.Of(seed)
		if of.Passed {
			passed++
		}
		if of.Passed && !of.Excusable {
			strict++
		}
		sum.add(of)
	}
	t.Logf("%d of %d cases have passed, %d of them without any excuse: %d objects and %d changes compared, %d of them as "+
		"the nodes of %d drivers move; %d refusals and %d differences, all named before; %d objects of clusters compared",
		passed, end-first, strict, sum.Objects, sum.Changes, sum.Later, sum.Drivers, sum.Refused, sum.Named, sum.Rendered)
	if passed >= enoughForShare {
		NewWithT(t).Expect(strict*100).To(BeNumerically(">=", passed*minStrictPercent), "in these, every difference counts")
	}
}

// At least minStrictPercent of enoughForShare cases or more are compared without any excuse.
const enoughForShare, minStrictPercent = 50, 80

func (r *result) add(other result) {
	r.Objects, r.Changes, r.Later = r.Objects+other.Objects, r.Changes+other.Changes, r.Later+other.Later
	r.Refused, r.Named, r.Drivers = r.Refused+other.Refused, r.Named+other.Named, r.Drivers+other.Drivers
	r.Rendered += other.Rendered
}

// trial is a case as it runs.
type trial struct {
	*world
	*scenario
	result result
}

// run installs, edits and removes.
func (c *trial) run() {
	for _, node := range c.nodes {
		c.addNode(node)
	}
	for _, one := range c.named {
		c.Expect(c.write(inNamespace(one))).To(Succeed())
	}
	first, plan := c.accepted(nil, false)
	rendered := c.world.run(c.file(&first), "render", "-f", "-", "--nodes", c.nodesFile())
	if !strings.Contains(rendered.errOut, noDrivers) && len(excusesIn(rendered.errOut).unread) == 0 {
		c.Expect(rendered.code).To(Equal(plan.exit), "render and plan find the same errors: "+rendered.errOut)
	}
	live := c.applied(&first, plan)
	if !plan.Paused {
		c.rerendered(live)
	}
	c.edited(&first)
	c.remove()
	contents := map[string]map[string]any{}
	for key, one := range decoded(c, rendered.out) {
		contents[key] = c.written(one)
	}
	c.result.Objects += len(contents)
	if plan.Paused {
		c.Expect(rendered.errOut).To(ContainSubstring("spec.paused is true: the operator would only report. Without it, "))
		c.Expect(live).To(BeEmpty(), "a paused policy")
	} else {
		c.judge("render", judgeRendering(contents, live), rendered.errOut)
	}
}

// accepted returns an edit that the API server accepts, with its plan. Of those that the API server refuses before, the
// plan of the first one must find that, too.
func (c *trial) accepted(earlier []*unstructured.Unstructured, held bool) (edit, foreseen) {
	c.t.Helper()
	for attempt := range 200 {
		e := c.edit(earlier, held)
		err := c.try(&e)
		if err == nil {
			plan := c.foresee(&e)
			c.Expect(plan.Refused).To(BeEmpty(), "the API server accepts it:\n"+c.file(&e))
			return e, plan
		}
		c.Expect(err).To(Satisfy(apierrors.IsInvalid), "%s", err)
		if attempt == 0 {
			c.Expect(c.foresee(&e).Refused).NotTo(BeEmpty(), "the API server refuses it: %s\n%s", err, c.file(&e))
			c.result.Refused++
		}
	}
	c.t.Fatal("the API server refuses nearly everything")
	return edit{}, foreseen{}
}

// foreseen is what plan printed.
type foreseen struct {
	preview.Preview
	exit int
}

// foresee runs plan for an edit.
func (c *trial) foresee(e *edit) foreseen {
	c.t.Helper()
	got := c.world.run(c.file(e), "plan", "-f", "-", "-o", "json")
	return foreseen{planned(c, got), got.code}
}

// applied applies an edit, and compares what the operator does with what was foreseen. It returns the stack.
func (c *trial) applied(e *edit, plan foreseen) objects {
	c.t.Helper()
	before := c.stack()
	c.writeAll(c.objects(e))
	after := c.settled()
	c.result.Changes += len(plan.Objects)
	named := strings.Join(plan.Notes, "\n")
	if plan.Paused {
		plan.Objects = nil
	}
	c.judge("plan", judgePlan(plan.Objects, false, before, after), named)
	if plan.Paused {
		return after
	}
	if c.anyInvalid() {
		c.Expect(plan.exit).To(Equal(1), "the operator refuses an operand: %s", named)
	}
	return after
}

// edited applies a second edit, where drivers may run, which then move.
func (c *trial) edited(first *edit) {
	c.t.Helper()
	if c.running {
		c.runDrivers()
		c.settled()
	}
	rest := c.world.run("", "plan", "-o", "json")
	for _, change := range planned(c, rest).Objects {
		if !change.Later && !planned(c, rest).Paused {
			c.t.Errorf("plan without an edit: %s %s %s", change.Action, change.Kind, change.Name)
		}
	}
	second, plan := c.accepted(first.drivers, c.running)
	before := c.applied(&second, plan)
	if plan.Paused {
		return
	}
	c.deletePods()
	after := c.settled()
	c.rerendered(after)
	for i := range plan.Objects {
		if plan.Objects[i].Later {
			c.result.Later++
		}
	}
	c.judge("plan, after the nodes have moved", judgePlan(plan.Objects, true, before, after),
		strings.Join(plan.Notes, "\n"))
}

// rerendered compares what render prints without a file with the stack. Its digests identify what the operator has
// applied. Objects that the operator leaves as they are may only be named.
func (c *trial) rerendered(live objects) {
	c.t.Helper()
	got := c.world.run("", "render")
	printed := decoded(c, got.out)
	for key, one := range printed {
		c.Expect(live).To(HaveKey(key), got.errOut)
		c.Expect(one.GetOwnerReferences()).To(Equal(live[key].GetOwnerReferences()), key)
		c.Expect(digestOf(c, one)).To(Equal(live[key].GetAnnotations()[labels.Digest]), key)
	}
	for key := range live {
		c.Expect(printed[key] != nil || strings.Contains(got.errOut, key+" stays as it is in the cluster")).To(BeTrue(),
			"%s is applied, and neither printed nor named:\n%s", key, got.errOut)
	}
	c.result.Rendered += len(printed)
}

// judge fails the test for each difference, unless it was named.
func (c *trial) judge(what string, differences []difference, named string) {
	c.t.Helper()
	excuses := excusesIn(named)
	c.result.Excusable = c.result.Excusable || !excuses.none()
	for _, found := range differences {
		if excuses.cover(found) {
			c.result.Named++
			continue
		}
		c.t.Errorf("%s: %s\nwhat was named:\n%s", what, found.text, named)
	}
}

// noDrivers is what render prints if it has no NVIDIADriver: unlike plan, it does not know whether the cluster has one.
const noDrivers = "no NVIDIADriver was read: add them to the file of the policy"

// anyInvalid reports whether the operator has refused an operand.
func (c *trial) anyInvalid() bool {
	operands, _, err := unstructured.NestedSlice(c.policy().Object, "status", "operands")
	c.Expect(err).NotTo(HaveOccurred())
	return slices.ContainsFunc(operands, func(operand any) bool {
		fields, isMap := operand.(map[string]any)
		return isMap && fields["state"] == string(v1.OperandInvalid)
	})
}
