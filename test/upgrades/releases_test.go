package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"
)

// TestReleases: releases of the operator, each with an image of its own and another default version of the driver, take
// over from each other. The policy names the driver's version, so that no node is touched and no driver replaced.
func TestReleases(t *testing.T) {
	t.Parallel()
	const nodes = 3
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(0, "100%")})
	var users []string
	for _, name := range nodeNames(nodes) {
		e.deploy(workload{name: "user-" + name, node: name, gpus: "8"}, 1)
		users = append(users, e.running("user-"+name)...)
	}
	mark, since := e.mark(), e.watch.now()
	for _, release := range []struct{ image, driver string }{
		{"registry.example.com/gpu-operator:v1.1.0", after},
		{"registry.example.com/gpu-operator:v1.2.0", later},
		{"registry.example.com/gpu-operator:v2.0.0", before},
	} {
		e.managers.stop(e)
		e.startAt("", "OPERATOR_IMAGE="+release.image, "DRIVER_IMAGE=nvcr.io/nvidia/driver:"+release.driver)
		e.awaitReady(nodes)
		e.atRest()
		e.undisturbed(since)
	}
	e.Expect(e.evictions(mark)).To(BeEmpty())
	e.Expect(e.deletions(mark, driverApp)).To(BeEmpty())
	var left []string
	for _, name := range nodeNames(nodes) {
		left = append(left, e.running("user-"+name)...)
	}
	e.Expect(left).To(Equal(users), "the pods with GPUs keep running")
	e.writesNothing()
}
