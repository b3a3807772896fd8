package driver

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// poolDigestLength is the number of digits of a pool name's digest in an object name.
const poolDigestLength = 8

// objectName returns the pool's name as a valid part of an object name. Label values allow more characters, so a name
// that had to be changed gets a digest as suffix, to keep it unique.
func objectName(pool string) string {
	name := strings.Map(func(c rune) rune {
		if c == '_' {
			return '-'
		}
		return c
	}, strings.ToLower(pool))
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		// A dot next to a hyphen is invalid.
		name = strings.ReplaceAll(name, ".", "-")
	}
	if name != pool {
		name += "-" + digest.Of(pool)[:poolDigestLength]
	}
	return name
}

// configDigest covers what determines which modules are built and loaded, and how. k8s-driver-manager and the driver
// container skip the reinstallation if it equals the digest of the loaded driver, so nothing else may be in it. Unset
// fields add nothing, so that a new field of the spec does not change the digest.
func configDigest(in operand.Input, v values) string {
	spec := in.Spec.Driver
	hash := digest.New()
	fmt.Fprintf(hash, "%q %q %q %q", v.Image, v.KernelModuleType, spec.Args, sorted(spec.Env))
	add := func(set bool, what string, values ...any) {
		if set {
			_, _ = io.WriteString(hash, " "+what)
			fmt.Fprintf(hash, " %q", values)
		}
	}
	add(v.RDMA, "rdma", v.MOFEDSource)
	add(v.GDS.Enabled, "gds", v.GDS.Image, sorted(v.GDS.env))
	add(len(v.GDS.programArgs) > 0, "gds args", v.GDS.programArgs)
	add(v.GDRCopy.Enabled, "gdrcopy", v.GDRCopy.Image, sorted(v.GDRCopy.env))
	add(len(v.GDRCopy.programArgs) > 0, "gdrcopy args", v.GDRCopy.programArgs)
	add(v.ModuleConfig.Set, "module parameters", v.ModuleConfig.Name)
	add(v.SecretEnv.Set, "secret environment", v.SecretEnv.Name)
	for _, used := range []operand.Reference{
		{Kind: operand.ConfigMap, Name: v.ModuleConfig.Name},
		{Kind: operand.Secret, Name: v.SecretEnv.Name},
	} {
		contents := in.Contents[used].Digest
		add(contents != "", "contents", used.String(), contents)
	}
	// Compiler and headers come from this image.
	add(v.DriverToolkit.Set, "driver toolkit", v.DriverToolkit.Image)
	return hash.String()
}

func sorted(env []v1.EnvVar) []v1.EnvVar {
	return slices.SortedFunc(slices.Values(env), func(a, b v1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
}
