package status

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

func TestOutdatedComponents(t *testing.T) {
	const driverLabel = "nvidia.com/cuda.driver-version.full"
	for name, c := range map[string]struct {
		nodes  int
		change func(e *env)
		// message is empty where the condition is absent.
		message string
	}{
		"the defaults": {nodes: 2},
		"versions in the spec": {nodes: 2, change: func(e *env) {
			e.spec.Toolkit = &v1.ToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v1.17.8"}}
			e.spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "580.159.03"}}
		}, message: "container-toolkit v1.17.8 (in the spec) is before 1.19.1, which fixes CVE-2026-24260: set " +
			"spec.toolkit.version to 1.19.1 or later, or remove it; driver 580.159.03 (in the spec) is before 580.178.04, " +
			"which fixes the vulnerabilities of NVIDIA's security bulletin 5861 (September 2026): set spec.driver.version to " +
			"580.178.04 or later, or update the host where the driver is the host's"},
		"the driver of hosts": {nodes: 6, change: func(e *env) {
			e.spec.Driver = &v1.DriverSpec{Enabled: new(false)}
			for i := range 5 {
				e.setLabel(i, driverLabel, "570.195.03")
			}
			e.setLabel(5, driverLabel, "580.178.04")
		}, message: "driver 570.195.03 (on 5 nodes: node-00000, node-00001, node-00002 and 2 more) is before 570.211.01"},
		"nodes that still run an older driver than the spec has": {nodes: 2, change: func(e *env) {
			e.setLabel(1, "nvidia.com/cuda.driver.major", "595")
			e.setLabel(1, "nvidia.com/cuda.driver.minor", "71")
			e.setLabel(1, "nvidia.com/cuda.driver.rev", "05")
		}, message: "driver 595.71.05 (on node-00001) is before 595.91.07"},
		"a driver in the spec and on nodes": {nodes: 1, change: func(e *env) {
			e.spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "580.95.05"}}
			e.setLabel(0, driverLabel, "580.95.05")
		}, message: "driver 580.95.05 (in the spec, on node-00000) is before"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, c.nodes)
			if c.change != nil {
				c.change(e)
			}
			status := e.status()
			found := meta.FindStatusCondition(status.Conditions, v1.ConditionOutdatedComponent)
			if c.message == "" {
				g.Expect(found).To(BeNil())
				return
			}
			g.Expect(found).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonOutdatedComponent)))
			g.Expect(found.Message).To(HavePrefix(c.message))
			ready := meta.FindStatusCondition(status.Conditions, v1.ConditionReady)
			without := newEnv(t, c.nodes).status()
			g.Expect(ready.Status).To(Equal(meta.FindStatusCondition(without.Conditions, v1.ConditionReady).Status))
		})
	}
}
