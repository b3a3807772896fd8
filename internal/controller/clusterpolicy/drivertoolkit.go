package clusterpolicy

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// One object in one namespace, which only OpenShift has: a role in that namespace could not be installed
// elsewhere.
// +kubebuilder:rbac:groups=image.openshift.io,resources=imagestreams,resourceNames=driver-toolkit,verbs=list;watch

// driverToolkit finds the images of OpenShift's driver toolkit if any of these nodes needs one. That they
// cannot be read concerns the drivers of these nodes only, which say so.
func (r *Reconciler) driverToolkit(ctx context.Context, in operand.Input, nodes []operand.NodeFacts) (map[string]string, error) {
	if !in.UsesDriverToolkit(nodes...) {
		return nil, r.DriverToolkit.Forget(ctx)
	}
	images, err := r.DriverToolkit.Images(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Nodes with Red Hat CoreOS get no driver")
	}
	return images, nil
}
