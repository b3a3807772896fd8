package containertoolkit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// preInstalledRemedy is the remedy for a node that the toolkit's pod does not support.
var preInstalledRemedy = fmt.Sprintf("install the toolkit on the host and set the node's label %s to %s",
	Name.DeployLabel(), labels.DeployPreInstalled)

// serves refuses a node whose container runtime the toolkit's pod cannot access, or would configure in the wrong file.
func serves(in operand.Input, facts nodeinfo.Facts) operand.Decision {
	layout, supported := facts.KnownLayout()
	switch {
	case !supported && facts.Runtime == "":
		return operand.Refuse(v1.ReasonFactsMissing, "the kubelet has not reported the node's container runtime yet")
	case !supported:
		return operand.Refuse(v1.ReasonNotSupportedYet, fmt.Sprintf(
			"container runtime %q is not supported, only containerd, CRI-O and Docker: %s", facts.Runtime, preInstalledRemedy))
	case in.NRIEnabled():
		return checkNRI(facts)
	}
	return checkLayout(in, layout)
}

// checkLayout decides whether the toolkit can configure a runtime of this layout as the spec requires.
func checkLayout(in operand.Input, layout nodeinfo.Layout) operand.Decision {
	if in.NRIEnabled() {
		if nriReleases[layout.Runtime] == nil {
			return nriUnsupported(layout.Runtime)
		}
		return operand.Accept()
	}
	paths := overridePaths(layout, in.Spec.Toolkit.Env)
	if paths.Config == "" || paths.Socket == "" && layout.Runtime == nodeinfo.RuntimeContainerd {
		return operand.Refuse(v1.ReasonNotSupportedYet, fmt.Sprintf(
			"the paths of containerd's files on %s are unknown: set CONTAINERD_CONFIG and CONTAINERD_SOCKET in "+
				"spec.toolkit.env, set spec.cdi.nriPluginEnabled, or %s", layout.Name, preInstalledRemedy))
	}
	if paths.Config == paths.DropIn {
		return operand.Refuse(v1.ReasonInvalidSpec, fmt.Sprintf(
			"spec.toolkit.env: %s is both the configuration file of %s and the drop-in file that it imports: "+
				"remove %s and %s, or set another %s",
			paths.Config, layout.Name, envConfig, runtimeNames[layout.Runtime].config, envDropIn))
	}
	autodetects := layout.FindsToolkit && paths.Config == layout.Config
	if autodetects &&
		(in.Spec.Paths().ToolkitInstallDir != labels.ToolkitInstallDir || in.RuntimeClass() != labels.DefaultRuntimeClass) {
		return operand.Refuse(v1.ReasonInvalidSpec, fmt.Sprintf(
			"%s expects the toolkit in %s and names its runtime %s: remove spec.toolkit.installDir and "+
				"spec.operator.runtimeClass, or set spec.cdi.nriPluginEnabled",
			layout.Name, labels.ToolkitInstallDir, labels.DefaultRuntimeClass))
	}
	return operand.Accept()
}

// nriReleases are the releases that support the toolkit's NRI plugin, by runtime, as NVIDIA documents them. A range
// without an upper bound has an empty before.
var nriReleases = map[string][]struct{ from, before string }{
	nodeinfo.RuntimeContainerd: {{"1.7.30", "2.0"}, {"2.1", ""}},
	nodeinfo.RuntimeCRIO:       {{"1.34", ""}},
}

func checkNRI(facts nodeinfo.Facts) operand.Decision {
	got, err := version.ParseGeneric(facts.RuntimeVersion)
	for _, release := range nriReleases[facts.Runtime] {
		tooOld := err != nil || got.LessThan(version.MustParseGeneric(release.from))
		if !tooOld && (release.before == "" || got.LessThan(version.MustParseGeneric(release.before))) {
			return operand.Accept()
		}
	}
	return nriUnsupported(facts.Runtime + " " + facts.RuntimeVersion)
}

func nriUnsupported(runtime string) operand.Decision {
	return operand.Refuse(v1.ReasonNotSupportedYet, fmt.Sprintf(
		"spec.cdi.nriPluginEnabled needs containerd 1.7.30, 2.1 or newer, or CRI-O 1.34 or newer, but the node has %s: "+
			"update the runtime, or remove spec.cdi.nriPluginEnabled", runtime))
}
