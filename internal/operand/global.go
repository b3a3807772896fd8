package operand

import (
	"cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Global is spec.global, which holds for every container of the stack.
func (in Input) Global() v1.GlobalSpec {
	if in.Spec.Global == nil {
		return v1.GlobalSpec{}
	}
	return *in.Spec.Global
}

// Paused tells whether nothing may be written but status.
func (in Input) Paused() bool { return IsTrue(in.Spec.Paused, false) }

const (
	caBundleField = "spec.global.caBundle.configMapName"
	defaultCAKey  = "ca-bundle.crt"
)

// CABundle is the ConfigMap with the certificates that containers trust, empty for none, and its key, the
// default filled in.
func (in Input) CABundle() (configMap, key string) {
	bundle := in.Global().CABundle
	if bundle == nil || bundle.ConfigMapName == "" {
		return "", ""
	}
	return bundle.ConfigMapName, cmp.Or(bundle.Key, defaultCAKey)
}
