package driver

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// reservedVariable is a variable that the operator sets from a field of the spec. If a user sets another value, the
// driver container, its sidecars and the validation contradict each other.
type reservedVariable struct {
	name string
	// field of the spec; empty if only the operator may set the variable.
	field string
	// matches reports whether a value agrees with the field.
	matches func(in operand.Input, value string) bool
}

var reservedVariables = []reservedVariable{
	{labels.KernelModuleTypeKey, "spec.driver.kernelModuleType", func(in operand.Input, value string) bool {
		return value == string(in.Spec.Driver.KernelModuleType)
	}},
	{labels.OpenModulesKey, "spec.driver.kernelModuleType", sameAs(func(in operand.Input) bool {
		return in.Spec.Driver.KernelModuleType == v1.KernelModuleOpen
	})},
	{labels.RDMAEnabledKey, "spec.driver.rdma.enabled", sameAs(rdma)},
	{labels.HostMOFEDKey, "spec.driver.rdma.useHostMofed", func(in operand.Input, value string) bool {
		// Without RDMA, nothing reads it.
		return !rdma(in) || sameAs(hostMOFED)(in, value)
	}},
	{labels.GDSEnabledKey, "spec.gds.enabled", sameAs(gds)},
	{labels.GDRCopyEnabledKey, "spec.gdrcopy.enabled", sameAs(gdrcopy)},
	{name: "DRIVER_CONFIG_DIGEST"},
	{name: podUIDVariable},
}

// podUIDVariable has the pod's UID, for the start-up probe and gpu-node.
const podUIDVariable = "POD_UID"

// sameAs compares a variable with a boolean field of the spec. An empty value means false.
func sameAs(field func(operand.Input) bool) func(operand.Input, string) bool {
	return func(in operand.Input, value string) bool {
		if value == "" {
			return !field(in)
		}
		is, err := strconv.ParseBool(value)
		return err == nil && is == field(in)
	}
}

// checkEnv refuses variables that are reserved or contradict a field of the spec.
func checkEnv(in operand.Input) operand.Decision {
	for _, list := range []struct {
		field string
		env   []v1.EnvVar
	}{
		{"spec.driver.env", in.Spec.Driver.Env},
		{"spec.driver.manager.env", in.Spec.Driver.Manager.Env},
		{"spec.gds.env", in.Spec.GDS.Env},
		{"spec.gdrcopy.env", in.Spec.GDRCopy.Env},
	} {
		for _, variable := range list.env {
			if problem := conflict(in, variable); problem != "" {
				return operand.Refuse(v1.ReasonInvalidSpec, fmt.Sprintf("%s: %s %s", in.Field(list.field), variable.Name,
					problem))
			}
		}
	}
	return operand.Accept()
}

func conflict(in operand.Input, variable v1.EnvVar) string {
	for _, reserved := range reservedVariables {
		switch {
		case reserved.name != variable.Name:
		case reserved.field == "":
			return "is reserved for the operator: remove it"
		case !reserved.matches(in, variable.Value):
			return fmt.Sprintf("is %q, which contradicts %s: remove the variable, and set the field instead",
				variable.Value, in.Field(reserved.field))
		}
	}
	return ""
}

// branch matches the version of a precompiled driver, which is the major version only.
var branch = regexp.MustCompile(`^[0-9]+$`)

// checkPrecompiled decides whether the spec allows a precompiled driver image for each kernel.
func checkPrecompiled(in operand.Input) operand.Decision {
	spec := in.Spec.Driver
	problem := ""
	switch {
	case gds(in):
		problem = "a precompiled driver cannot have GPUDirect Storage: remove this field or " + in.Field("spec.gds.enabled")
	case gdrcopy(in):
		problem = "a precompiled driver cannot have GDRCopy: remove this field or " + in.Field("spec.gdrcopy.enabled")
	case strings.Contains(spec.Image, "@"):
		problem = fmt.Sprintf("image %q has a digest, but each kernel needs its own image: remove the digest", spec.Image)
	case spec.IsFullReference():
		// The kernel is appended to it.
	case spec.Version == "":
		problem = "set " + in.Field("spec.driver.version") + " to a driver branch, such as 595"
	case !branch.MatchString(spec.Version):
		problem = fmt.Sprintf("version %q is not a driver branch: set one, such as 595", spec.Version)
	}
	if problem != "" {
		return operand.Refuse(v1.ReasonInvalidSpec, in.Field("spec.driver.usePrecompiled")+": "+problem)
	}
	return operand.Accept()
}

// driverToolkitMissing refuses a pool without an image of OpenShift's driver toolkit. The message starts with what is
// missing, as the status of a node shows only the beginning.
func driverToolkitMissing(in operand.Input, release string) operand.Decision {
	missing := fmt.Sprintf("ImageStream %s has no tag %s with an image", labels.DriverToolkitStream, release)
	if in.DriverToolkit == nil {
		missing = fmt.Sprintf("ImageStream %s, which must have tag %s, is missing or cannot be read",
			labels.DriverToolkitStream, release)
	}
	return operand.Refuse(v1.ReasonDriverToolkitMissing, missing+": the driver for this release of Red Hat CoreOS is "+
		"built with that image. Add the tag; or, if the hosts have a Red Hat subscription, set "+
		"spec.operator.use_ocp_driver_toolkit to false; or set spec.driver.usePrecompiled")
}

// servesPool decides whether the spec can be applied to the nodes of a pool.
func servesPool(in operand.Input, pool nodeinfo.Pool) operand.Decision {
	key := in.PoolCriteria()
	system, supported := systems[osID(pool.OSTag)]
	switch {
	// The nodes keep the driver of the previous spec until it is upgraded, which moves them to another pool.
	case (pool.Kernel != "") != key.Kernel:
		return operand.Refuse(v1.ReasonUpgradePending,
			"the nodes still run a driver installed for another value of "+in.Field("spec.driver.usePrecompiled")+
				", until it is upgraded")
	case key.Kernel:
		return operand.Accept()
	case pool.CoreOS != "" && !key.CoreOS, pool.CoreOS == "" && key.CoreOS && system.coreOS:
		return operand.Refuse(v1.ReasonUpgradePending,
			"the nodes still run a driver installed for another value of spec.operator.use_ocp_driver_toolkit, "+
				"until it is upgraded")
	case pool.CoreOS != "" && in.DriverToolkit[pool.CoreOS] == "":
		return driverToolkitMissing(in, pool.CoreOS)
	case !supported && (repoConfig(in) != "" || certConfig(in) != ""):
		return operand.Refuse(v1.ReasonNotSupportedYet, fmt.Sprintf(
			"%s and %s are not supported on %s: remove them, and use a driver image that contains these files",
			in.Field("spec.driver.repoConfig"), in.Field("spec.driver.certConfig"), pool.OSTag))
	}
	return operand.Accept()
}
