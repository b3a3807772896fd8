package assess

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// The last lines of NVIDIA's driver container, in lower case, on a node with a kernel that the driver does not fit: of
// its own script, of apt and dnf, and of modprobe, which prints the errors ENOKEY and EKEYREJECTED of the kernel.
var (
	headersMissing = regexp.MustCompile(
		`could not resolve linux kernel version|unable to (?:locate|find)\b.*\bkernel-(?:headers|devel|core)` +
			`|unable to locate package linux-(?:headers|image|modules)`)
	moduleRejected = regexp.MustCompile(`required key not available|key was rejected by service`)
	rejectedModule = regexp.MustCompile(`insert(?:ing)?(?: module)? '?([\w-]+)`)
)

// explainKernel gives the failure of a driver that does not fit the kernel of its node a reason of its own.
func explainKernel(verdict readiness.Verdict, node plan.NodePlan) readiness.Verdict {
	if verdict.State != readiness.Failed {
		return verdict
	}
	output, kernel := strings.ToLower(verdict.Detail), cmp.Or(node.Facts.Kernel, "unknown")
	switch {
	case headersMissing.MatchString(output):
		verdict.Reason = v1.ReasonKernelHeadersMissing
		verdict.Message = fmt.Sprintf(
			"no headers for kernel %s: add their repository in spec.driver.repoConfig, or set usePrecompiled", kernel)
	case moduleRejected.MatchString(output):
		module := "nvidia"
		if found := rejectedModule.FindStringSubmatch(output); found != nil {
			module = found[1]
		}
		verdict.Reason = v1.ReasonKernelModuleRejected
		verdict.Message = fmt.Sprintf(
			"kernel %s rejects module %s (Secure Boot): use signed modules, or turn it off", kernel, module)
	case verdict.Reason == v1.ReasonImagePullBackOff && node.Facts.PoolKernel != "":
		verdict.Message += fmt.Sprintf(": check that it exists for kernel %s", node.Facts.PoolKernel)
	}
	return verdict
}
