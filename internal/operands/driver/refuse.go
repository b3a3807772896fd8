package driver

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// ownVariable is a variable that the operator sets by a field of the spec. One of the user that says
// something else would have the driver container, its sidecars and the validation work against each
// other.
type ownVariable struct {
	name string
	// field of the spec; empty where the operator alone knows the value.
	field string
	// agrees tells whether a value says what the field says.
	agrees func(in operand.Input, value string) bool
}

var ownVariables = []ownVariable{
	{"KERNEL_MODULE_TYPE", "spec.driver.kernelModuleType", func(in operand.Input, value string) bool {
		return value == string(moduleType(spec(in)))
	}},
	{"OPEN_KERNEL_MODULES_ENABLED", "spec.driver.kernelModuleType", sameAs(func(in operand.Input) bool {
		return moduleType(spec(in)) == v1.KernelModuleOpen
	})},
	{labels.RDMAEnabledKey, "spec.driver.rdma.enabled", sameAs(rdma)},
	{"USE_HOST_MOFED", "spec.driver.rdma.useHostMofed", sameAs(hostMOFED)},
	{labels.GDSEnabledKey, "spec.gds.enabled", sameAs(gds)},
	{labels.GDRCopyEnabledKey, "spec.gdrcopy.enabled", sameAs(gdrcopy)},
	{name: "DRIVER_CONFIG_DIGEST"},
	{name: podUIDVariable},
}

// podUIDVariable names the pod to the start-up probe and to gpu-node.
const podUIDVariable = "POD_UID"

// sameAs compares a variable with a boolean of the spec; empty counts as false.
func sameAs(field func(operand.Input) bool) func(operand.Input, string) bool {
	return func(in operand.Input, value string) bool {
		if value == "" {
			return !field(in)
		}
		is, err := strconv.ParseBool(value)
		return err == nil && is == field(in)
	}
}

// contradictingEnv refuses variables that say something else than the fields that they stand for.
func contradictingEnv(in operand.Input) operand.Decision {
	for _, list := range []struct {
		field string
		env   []v1.EnvVar
	}{
		{"spec.driver.env", spec(in).Env},
		{"spec.driver.manager.env", or(spec(in).Manager).Env},
		{"spec.gds.env", or(in.Spec.GDS).Env},
		{"spec.gdrcopy.env", or(in.Spec.GDRCopy).Env},
	} {
		for _, variable := range list.env {
			if why := contradiction(in, variable); why != "" {
				return operand.Refused(v1.ReasonInvalidSpec, fmt.Sprintf("%s: %s %s", list.field, variable.Name, why))
			}
		}
	}
	return operand.Installed()
}

func contradiction(in operand.Input, variable v1.EnvVar) string {
	for _, own := range ownVariables {
		switch {
		case own.name != variable.Name:
		case own.field == "":
			return "is the operator's own: remove it"
		case !own.agrees(in, variable.Value):
			return fmt.Sprintf("is %q, which %s contradicts: remove the variable, and set the field if that is what you want",
				variable.Value, own.field)
		}
	}
	return ""
}

// branch is the version of a precompiled driver: its first number.
var branch = regexp.MustCompile(`^[0-9]+$`)

// precompilable tells whether there are images for each kernel of such a driver.
func precompilable(in operand.Input) operand.Decision {
	spec := spec(in)
	const field = "spec.driver.usePrecompiled: "
	switch {
	case strings.ContainsAny(spec.Image, "/:@"):
		return operand.Refused(v1.ReasonInvalidSpec, field+fmt.Sprintf(
			"image %q is one whole reference for all kernels: name repository, image and version apart", spec.Image))
	case spec.Version == "":
		return operand.Refused(v1.ReasonInvalidSpec, field+"set spec.driver.version to a branch of the driver, such as 595")
	case !branch.MatchString(spec.Version):
		return operand.Refused(v1.ReasonInvalidSpec, field+fmt.Sprintf(
			"version %q is no branch of the driver: name one, such as 595", spec.Version))
	case gds(in):
		return operand.Refused(v1.ReasonInvalidSpec, field+"a precompiled driver cannot have GPUDirect Storage: remove it or spec.gds.enabled")
	case gdrcopy(in):
		return operand.Refused(v1.ReasonInvalidSpec, field+"a precompiled driver cannot have GDRCopy: remove it or spec.gdrcopy.enabled")
	}
	return operand.Installed()
}

// servesPool refuses what the spec asks of the nodes of one pool.
func servesPool(in operand.Input, pool operand.Pool) operand.Decision {
	precompiled := in.PoolKey().Kernel
	known, isKnown := systems[osID(pool.OSTag)]
	switch {
	case (pool.Kernel != "") != precompiled:
		// Its nodes have the driver of another spec, until they are moved.
		return operand.Refused(v1.ReasonUpgradePending, "the nodes have the driver of another value of spec.driver.usePrecompiled")
	case precompiled:
		return operand.Installed()
	case known.driverToolkit && (in.Spec.Operator == nil || operand.IsTrue(in.Spec.Operator.UseOCPDriverToolkit, true)):
		return operand.Refused(v1.ReasonNotSupportedYet, "the driver toolkit of OpenShift is not supported yet: "+
			"set spec.operator.use_ocp_driver_toolkit to false to build the driver on the node, or use spec.driver.usePrecompiled")
	case !isKnown && (repoConfig(in) != "" || certConfig(in) != ""):
		return operand.Refused(v1.ReasonNotSupportedYet, fmt.Sprintf(
			"where an image for %s has its repositories and certificates is not known: "+
				"remove spec.driver.repoConfig and spec.driver.certConfig, and put them into an image of your own", pool.OSTag))
	}
	return operand.Installed()
}
