package driver

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/digest"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// poolDigestLength is how many digits of the digest of a pool's name an object's name has.
const poolDigestLength = 8

// objectName is the pool's name as part of an object's name: a label value may hold more. Where that
// changes it, a hash keeps two pools apart whose names differ in nothing else.
func objectName(pool string) string {
	name := strings.Map(func(c rune) rune {
		if c == '_' {
			return '-'
		}
		return c
	}, strings.ToLower(pool))
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		// A dot beside a hyphen.
		name = strings.ReplaceAll(name, ".", "-")
	}
	if name != pool {
		name += "-" + digest.Of(pool)[:poolDigestLength]
	}
	return name
}

// configDigest covers what decides which modules are built and loaded, and how. k8s-driver-manager and
// the driver container skip the reinstallation when it is the same as that of the loaded driver, so
// anything else in it would unload a driver for nothing. What is not set adds nothing, so that a new
// field of the spec changes no digest.
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
	// Another image has another compiler and other headers.
	add(v.DriverToolkit.Set, "driver toolkit", v.DriverToolkit.Image)
	return hash.String()
}

func sorted(env []v1.EnvVar) []v1.EnvVar {
	return slices.SortedFunc(slices.Values(env), func(a, b v1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
}
