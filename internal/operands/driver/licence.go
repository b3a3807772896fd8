package driver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

const (
	licenceVolume = "licensing-config"
	licenceFile   = "gridd.conf"
	tokenFile     = "client_configuration_token.tok"
)

// licence is the licence of a vGPU guest driver, in a Secret or, without one, in a ConfigMap.
type licence struct {
	operand.Use
	// token: the NVIDIA License System is used, which needs a client token.
	token bool
}

// licenceOf returns the licence that the spec names. Unless the spec decides, the token is used if the object has it:
// licences of an older licence server have none. If the objects have not been read, it is used.
func licenceOf(in operand.Input) licence {
	spec := in.Spec.Driver.LicensingConfig
	l := licence{Use: operand.SecretUse("spec.driver.licensingConfig.secretName", spec.SecretName, licenceFile)}
	if spec.SecretName == "" {
		l.Use = operand.ConfigMapUse("spec.driver.licensingConfig.configMapName", spec.ConfigMapName, licenceFile)
	}
	switch content, exists := in.Contents[l.Reference]; {
	case !l.isSet():
	case spec.NLSEnabled != nil:
		l.token = *spec.NLSEnabled
	default:
		l.token = !exists || slices.Contains(content.Keys, tokenFile)
	}
	if l.token {
		l.Keys = append(l.Keys, tokenFile)
	}
	return l
}

func (l licence) isSet() bool { return l.Name != "" }

func (l licence) source() corev1.VolumeSource {
	if l.Kind == operand.ConfigMap {
		return configMapSource(l.Name, l.Keys...)
	}
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: l.Name, Items: items(l.Keys...)}}
}
