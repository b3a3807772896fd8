package podrules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func checkTolerations(tolerations []corev1.Toleration, found report) {
	for i, toleration := range tolerations {
		checkToleration(toleration, func(below, format string, args ...any) {
			found(fmt.Sprintf("[%d]%s", i, below), format, args...)
		})
	}
}

func checkToleration(t corev1.Toleration, found report) {
	if t.Key != "" {
		checkKey(t.Key, ".key", found)
	} else if t.Operator != corev1.TolerationOpExists {
		found(".operator", "must be Exists if key is empty")
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		found(".effect", "must be NoExecute if tolerationSeconds is set")
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
			found(".value", "%q is not the value of a taint: %s", t.Value, problems[0])
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			found(".value", "must be empty if operator is Exists")
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if !isNumber(t.Value) {
			found(".value", "must be a whole number if operator is Lt or Gt")
		}
	default:
		found(".operator", "must be Exists, Equal, Lt or Gt")
	}
	if !isOneOf(t.Effect, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute) {
		found(".effect", "must be NoSchedule, PreferNoSchedule, NoExecute or empty for all")
	}
}

// isNumber reports whether a text is the one form of a whole number of 64 bits.
func isNumber(text string) bool {
	number, _ := strconv.ParseInt(text, 10, 64) // What is no such number differs from the text.
	return strconv.FormatInt(number, 10) == text
}

func isOneOf[T comparable](value T, allowed ...T) bool { return slices.Contains(allowed, value) }

func checkSecurityContext(context corev1.PodSecurityContext, found report) {
	checkIDs(context, found)
	checkPolicies(context, found)
	if profile := context.SeccompProfile; profile != nil {
		checkProfile(string(profile.Type), profile.LocalhostProfile, func(below, format string, args ...any) {
			found(".seccompProfile"+below, format, args...)
		})
		if profile.LocalhostProfile != nil && !isBelow(*profile.LocalhostProfile) {
			found(".seccompProfile.localhostProfile", "must be a relative path without '..'")
		}
	}
	if profile := context.AppArmorProfile; profile != nil {
		checkProfile(string(profile.Type), profile.LocalhostProfile, func(below, format string, args ...any) {
			found(".appArmorProfile"+below, format, args...)
		})
		if name := profile.LocalhostProfile; name != nil && !isProfileName(*name) {
			found(".appArmorProfile.localhostProfile", "must be the name of a profile, without spaces around it")
		}
	}
	checkSysctls(context.Sysctls, found)
	checkWindows(context.WindowsOptions, found)
}

func isProfileName(name string) bool {
	const longestPath = 4095
	return name != "" && strings.TrimSpace(name) == name && len(name) <= longestPath
}

func checkIDs(context corev1.PodSecurityContext, found report) {
	check := func(below string, id *int64) {
		if id != nil && len(validation.IsValidUserID(*id)) > 0 {
			found(below, "%d is not an ID: it must be from 0 to 2147483647", *id)
		}
	}
	check(".runAsUser", context.RunAsUser)
	check(".runAsGroup", context.RunAsGroup)
	check(".fsGroup", context.FSGroup)
	for i := range context.SupplementalGroups {
		check(fmt.Sprintf(".supplementalGroups[%d]", i), &context.SupplementalGroups[i])
	}
	if context.RunAsNonRoot != nil && *context.RunAsNonRoot && context.RunAsUser != nil && *context.RunAsUser == 0 {
		found(".runAsUser", "is 0, which is root, though runAsNonRoot is true: change one of them")
	}
}

func checkPolicies(context corev1.PodSecurityContext, found report) {
	if policy := context.FSGroupChangePolicy; policy != nil &&
		!isOneOf(*policy, corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways) {
		found(".fsGroupChangePolicy", "must be OnRootMismatch or Always")
	}
	if policy := context.SupplementalGroupsPolicy; policy != nil &&
		!isOneOf(*policy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict) {
		found(".supplementalGroupsPolicy", "must be Merge or Strict")
	}
	if policy := context.SELinuxChangePolicy; policy != nil &&
		!isOneOf(*policy, corev1.SELinuxChangePolicyRecursive, corev1.SELinuxChangePolicyMountOption) {
		found(".seLinuxChangePolicy", "must be Recursive or MountOption")
	}
}

// checkProfile checks the type of a seccomp or AppArmor profile, which have the same names.
func checkProfile(kind string, localhost *string, found report) {
	switch kind {
	case string(corev1.SeccompProfileTypeLocalhost):
		if localhost == nil {
			found(".localhostProfile", "must be set if type is Localhost")
		}
	case string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined):
		if localhost != nil {
			found(".localhostProfile", "must not be set unless type is Localhost")
		}
	default:
		found(".type", "must be RuntimeDefault, Unconfined or Localhost")
	}
}

// sysctl matches the name of a parameter of the kernel.
var sysctl = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func checkSysctls(sysctls []corev1.Sysctl, found report) {
	seen := map[string]bool{}
	for i, parameter := range sysctls {
		below := fmt.Sprintf(".sysctls[%d].name", i)
		switch {
		case !sysctl.MatchString(parameter.Name) || len(parameter.Name) > validation.DNS1123SubdomainMaxLength:
			found(below, "%q is not the name of a kernel parameter, such as net.core.somaxconn", parameter.Name)
		case seen[parameter.Name]:
			found(below, "%s occurs several times: remove the others", parameter.Name)
		}
		seen[parameter.Name] = true
	}
}

// windowsUser matches the names of users that every rule of Windows allows.
var windowsUser = regexp.MustCompile(`^([A-Za-z0-9][-A-Za-z0-9]{0,14}\\)?[-A-Za-z0-9_][-A-Za-z0-9_. ]{0,103}$`)

// checkWindows checks options for Windows, which have no effect on the nodes of the stack.
func checkWindows(options *corev1.WindowsSecurityContextOptions, found report) {
	if options == nil {
		return
	}
	const largest, remedy = 64 << 10, ", and has no effect on Linux: remove it"
	if options.HostProcess != nil && *options.HostProcess {
		found(".windowsOptions.hostProcess", "is for Windows only: remove it")
	}
	if name := options.GMSACredentialSpecName; name != nil && len(validation.IsDNS1123Subdomain(*name)) > 0 {
		found(".windowsOptions.gmsaCredentialSpecName", "%q is not the name of an object%s", *name, remedy)
	}
	if spec := options.GMSACredentialSpec; spec != nil && (*spec == "" || len(*spec) > largest) {
		found(".windowsOptions.gmsaCredentialSpec", "is empty or longer than 64 KiB%s", remedy)
	}
	if user := options.RunAsUserName; user != nil && !windowsUser.MatchString(*user) {
		found(".windowsOptions.runAsUserName", "%q is not the name of a user%s", *user, remedy)
	}
}
