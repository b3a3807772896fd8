package controller_test

import (
	"context"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// allocated returns how many bytes one run allocates, on average of some after the first.
func allocated(run func()) uint64 {
	const runs = 5
	run()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		run()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / runs
}

// While a driver pod is of an older template, which may be for good, a pass does not copy the pods of the cluster: a
// pod takes 1.2 kB in a list.
func TestPassWithOutdatedDriverCopiesNoPods(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the memory of a large cluster; make test-envtest and make test-controller run it")
	}
	g := NewWithT(t)
	o := newOperator()
	pods := o.makeReady(o.addNodes(0, 200))
	g.Expect(pods).To(Equal(200 * 11))
	pass := func() { o.reconcileAll() }
	upToDate := allocated(pass)

	drivers := &appsv1.DaemonSetList{}
	must(o.List(context.Background(), drivers))
	outdated := 0
	for i := range drivers.Items {
		if ds := drivers.Items[i].DeepCopy(); ds.Labels[labels.Operand] == "driver" {
			ds.Status.UpdatedNumberScheduled--
			o.put(ds)
			outdated++
		}
	}
	g.Expect(outdated).NotTo(BeZero())
	withOutdated := allocated(pass)
	t.Logf("a pass allocates %d kB, and with an outdated driver pod %d kB", upToDate>>10, withOutdated>>10)
	g.Expect(withOutdated).To(BeNumerically("<", upToDate+256<<10))
}
