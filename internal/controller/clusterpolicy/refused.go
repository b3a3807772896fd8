package clusterpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// withFields adds to an error that names fields of a DaemonSet those of the spec that decide about them: users know
// only these. Other errors stay as they are.
func withFields(p plan.Plan, o *operand.Operand, object client.Object, err error) error {
	status := apierrors.APIStatus(nil)
	_, isDaemonSet := object.(*appsv1.DaemonSet)
	if !isDaemonSet || !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	in := p.InputForNodePool(o, object.GetLabels()[labels.NodePool])
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		for _, field := range in.FieldsOf(o, cause.Field) {
			if !slices.Contains(fields, field) {
				fields = append(fields, field)
			}
		}
	}
	if len(fields) == 0 {
		return err
	}
	return fmt.Errorf("%s%s: %w", ownerOf(in), strings.Join(fields, ", "), err)
}

// ownerOf returns what has the fields of an input, if it is not the policy: "node pool a: ".
func ownerOf(in operand.Input) string {
	switch {
	case in.NodePool == nil:
		return ""
	case in.OfNVIDIADriver:
		for i := range in.NVIDIADrivers {
			if driver := &in.NVIDIADrivers[i]; driver.Pool == in.NodePool.Name {
				return "NVIDIADriver " + driver.Name + ": "
			}
		}
	}
	return "node pool " + in.NodePool.Name + ": "
}
