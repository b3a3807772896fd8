package render_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// OpenShift refuses pods whose ServiceAccount may not use the privileged security context constraints.
func TestEveryOperandsAccountMayUseTheConstraintsOfOpenShift(t *testing.T) {
	text, err := os.ReadFile("../../../config/openshift/operands.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var granted []string
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		binding := rbacv1.RoleBinding{}
		if err := yaml.Unmarshal(document, &binding); err != nil {
			t.Fatal(err)
		}
		if binding.Kind != "RoleBinding" || binding.Name != "gpu-operator-privileged" {
			continue
		}
		for _, subject := range binding.Subjects {
			granted = append(granted, subject.Name)
		}
	}
	spec := specgen.AllEnabled()
	spec.DevicePlugin.Config = &v1.DevicePluginConfigSpec{Name: "plugin-configs"}
	everyOperand := situation{spec: spec, nodes: []nodeinfo.Facts{mpsNode()}}
	var used []string
	for _, daemonSets := range everyOperand.daemonSets(t) {
		for _, ds := range daemonSets {
			used = append(used, ds.Spec.Template.Spec.ServiceAccountName)
		}
	}
	slices.Sort(used)
	if diff := cmp.Diff(slices.Compact(used), granted); diff != "" {
		t.Errorf("-used +granted:\n%s", diff)
	}
}
