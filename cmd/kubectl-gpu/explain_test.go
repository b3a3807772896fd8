package main

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// Of a node whose GPUs can be used, what the operator notes is shown without a claim that nothing is wrong.
func TestNoteOnAReadyNode(t *testing.T) {
	text := nodeText(&explain.Node{Node: overview.Node{
		Name: "a", Ready: overview.Ready, Message: "GPUs can be used; label nvidia.com/gpu.workload.config=x is unknown",
	}})
	NewWithT(t).Expect(text).To(And(
		ContainSubstring("Nothing keeps pods from its GPUs: GPUs can be used; label nvidia.com/gpu.workload.config=x"),
		Not(ContainSubstring("Nothing is wrong"))))
}

// Of the tenants, the explanation of a node depends on those of the node, and its text on none.
func TestTenantsOfANode(t *testing.T) {
	g := NewWithT(t)
	g.Expect(explainOptions{output: "text"}.tenantsOf("a")).To(BeNil())
	g.Expect(explainOptions{output: "json"}.tenantsOf("a")).To(Equal(&metav1.ListOptions{
		FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed,spec.nodeName=a",
		LabelSelector: "app.kubernetes.io/managed-by!=gpu-operator",
	}))
	g.Expect(tenants.FieldSelector).NotTo(ContainSubstring("=a"), "the query itself stays")
}
