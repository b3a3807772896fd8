package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Of the tenants, the explanation of a node depends on those of the node, and its text on none.
func TestTenantsOfANode(t *testing.T) {
	g := NewWithT(t)
	g.Expect(explainOptions{output: "text"}.tenantsOf("a")).To(BeNil())
	g.Expect(explainOptions{output: "json"}.tenantsOf("a").Encode()).To(Equal(
		"fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed%2Cspec.nodeName%3Da&" +
			"labelSelector=app.kubernetes.io%2Fmanaged-by%21%3Dgpu-operator"))
	g.Expect(tenants.Get("fieldSelector")).NotTo(ContainSubstring("=a"), "the query itself stays")
}
