package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// What the API server may answer.
var (
	nodes        = schema.GroupResource{Resource: "nodes"}
	errConflict  = apierrors.NewConflict(nodes, "x", errors.New("it has changed"))
	errNotFound  = apierrors.NewNotFound(nodes, "x")
	errForbidden = apierrors.NewForbidden(nodes, "x", errors.New("no permission"))
	errTimeout   = apierrors.NewTimeoutError("the request took too long", 1)
	errInternal  = apierrors.NewInternalError(errors.New("etcd is full"))
	answers      = []error{errConflict, errNotFound, errForbidden, errTimeout, errInternal}
)

// eachFailure returns an entry for each call and each answer.
func eachFailure(answers []error, kinds ...string) []TableEntry {
	var entries []TableEntry
	for _, what := range kinds {
		for _, answer := range answers {
			entries = append(entries, Entry(fmt.Sprintf("%s: %s", what, apierrors.ReasonForError(answer)), what, answer))
		}
	}
	return entries
}

// notForbidden returns the answers to a write of taints that are failures: Forbidden is not.
func notForbidden() []error {
	return slices.DeleteFunc(slices.Clone(answers), apierrors.IsForbidden)
}

// expectFailure expects the consequences of a failed call, other than reading the node. all are the calls in order.
func (f *fixture) expectFailure(ctx context.Context, what string, failure error, all []string) {
	GinkgoHelper()
	f.takeCalls()
	f.fail(what, failure)
	wait, err := f.reconcileAfter(ctx, time.Second)
	f.fail(what, nil)
	Expect(f.takeCalls()).To(Equal(all[:slices.Index(all, what)+1]), "no call follows the failed one")
	switch {
	case apierrors.IsConflict(failure):
		Expect(err).NotTo(HaveOccurred())
		Expect(wait).To(Equal(time.Second))
		Expect(f.entry().WriteError).To(BeEmpty())
	case apierrors.IsNotFound(failure):
		Expect(err).NotTo(HaveOccurred())
		Expect(f.entry().WriteError).To(BeEmpty())
	default:
		Expect(err).To(MatchError(failure))
		Expect(f.entry().WriteError).To(Equal(err.Error()))
		Expect(err).To(MatchError(ContainSubstring("of node %s: ", f.name)))
	}
}

var _ = Describe("A call that fails once", func() {
	DescribeTable(
		"while a node joins: everything is written a second later, and nothing twice",
		func(ctx SpecContext, what string, failure error) {
			f := newFixture(ctx)
			f.publish(v1.ClusterPolicySpec{})
			all := []string{getNode, listPods, patchLabels, patchCondition}
			f.expectFailure(ctx, what, failure, all)
			if what == listPods {
				Expect(f.entry().BasisVersion).To(BeZero(), "it could not be assessed")
			} else {
				Expect(f.entry().BasisVersion).To(Equal(uint64(1)), "it is assessed although it was not written")
				Expect(f.entry().Latest.Ready()).To(BeTrue())
			}
			Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
			rest := slices.Concat([]string{getNode, listPods}, all[max(slices.Index(all, what), 2):])
			Expect(f.takeCalls()).To(Equal(rest))
			Expect(f.reported(ctx)).To(Equal("True GPUReady"))
			Expect(f.node(ctx).Labels).To(HaveKeyWithValue(labels.Pool, "ubuntu24.04-amd64"))
			Expect(f.entry()).
				To(
					And(
						HaveField("WriteError", BeEmpty()),
						HaveField("BasisVersion", uint64(1)),
						HaveField("Writes.Backoff", BeZero()),
					),
				)
		},
		eachFailure(answers, listPods, patchLabels, patchCondition),
	)

	DescribeTable(
		"while a node is released: nothing of the operator is on it a second later",
		func(ctx SpecContext, what string, failure error) {
			f := newFailedForGood(ctx)
			f.fleet.Publish(fleet.Basis{}, f.clock.Now())
			all := []string{getNode, patchLabels, patchCondition, patchTaints}
			f.expectFailure(ctx, what, failure, all)
			Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
			Expect(f.takeCalls()).To(Equal(slices.Concat([]string{getNode}, all[slices.Index(all, what):])))
			f.expectReleased(ctx)
		},
		eachFailure(answers, patchLabels, patchCondition),
		eachFailure(notForbidden(), patchTaints),
	)

	DescribeTable(
		"while a node without GPUs is released: that is done a second later",
		func(ctx SpecContext, what string, failure error) {
			f := newLost(ctx)
			f.clock.SetTime(f.clock.Now().Add(grace))
			all := []string{getNode, listLive, patchLabels, patchCondition}
			f.expectFailure(ctx, what, failure, all)
			Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
			Expect(f.reported(ctx)).To(BeEmpty())
			Expect(f.node(ctx).Labels).To(HaveKeyWithValue(labels.GPUPresent, labels.False))
		},
		eachFailure(answers, patchLabels, patchCondition),
	)

	DescribeTable("while a node is read", func(ctx SpecContext, what string, failure error) {
		f := newReady(ctx)
		before := f.entry()
		f.fail(what, failure)
		wait, err := f.reconcileAfter(ctx, time.Second)
		Expect(wait).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode}))
		if apierrors.IsNotFound(failure) {
			Expect(err).NotTo(HaveOccurred())
			Expect(f.entry()).To(BeNil(), "it does not exist")
			return
		}
		Expect(err).To(MatchError(failure))
		Expect(err).To(MatchError(ContainSubstring("reading node %s: ", f.name)))
		Expect(f.entry()).To(BeIdenticalTo(before))
	}, eachFailure(answers, getNode))

	DescribeTable("while a node has not been discovered", func(ctx SpecContext, what string, failure error) {
		f := newFixture(ctx, func(node *corev1.Node) { node.Labels = nil })
		f.publish(v1.ClusterPolicySpec{})
		f.expectFailure(ctx, what, failure, []string{getNode, listPods})
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.entry()).To(And(HaveField("Discovering", HaveLen(1)), HaveField("WriteError", BeEmpty())))
	}, eachFailure(answers, listPods))

	DescribeTable(
		"while its Event is written: the condition does not wait for that",
		func(ctx SpecContext, what string, failure error) {
			f := newReady(ctx)
			f.setPod(ctx, driver, crashes)
			f.fail(what, failure)
			_, err := f.reconcileAfter(ctx, time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(f.reported(ctx)).To(Equal("False CrashLoopBackOff"))
			Expect(f.entry().WriteError).To(BeEmpty())
		},
		eachFailure(answers, createEvent),
	)
})
