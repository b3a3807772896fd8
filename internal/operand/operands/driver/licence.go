package driver

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

const (
	licenceFile    = "gridd.conf"
	tokenDirectory = "ClientConfigToken"
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
	l := licence{Use: operand.SecretUse(in.Field("spec.driver.licensingConfig.secretName"), spec.SecretName, licenceFile)}
	if spec.SecretName == "" {
		l.Use = operand.ConfigMapUse(in.Field("spec.driver.licensingConfig.configMapName"), spec.ConfigMapName, licenceFile)
	}
	l.MayRead = []string{labels.LicenceTokenKey}
	switch content, exists := in.Contents[l.Reference]; {
	case !l.isSet():
	case spec.NLSEnabled != nil:
		l.token = *spec.NLSEnabled
	default:
		l.token = !exists || slices.Contains(content.Keys, labels.LicenceTokenKey)
	}
	if l.token {
		l.Keys, l.LiveKeys = append(l.Keys, labels.LicenceTokenKey), []string{labels.LicenceTokenKey}
	}
	return l
}

func (l licence) isSet() bool { return l.Name != "" }

// mounts are those of the driver container. The token is rotated: it is mounted as a directory, in which the kubelet
// replaces it, so that a new one reaches running drivers.
func (l licence) mounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if l.isSet() {
		mounts = append(mounts, fileMount(labels.LicenceVolume, licenceFile, path.Join(driverFiles, licenceFile)))
	}
	if l.token {
		mounts = append(mounts, corev1.VolumeMount{
			Name: labels.LicenceTokenVolume, MountPath: path.Join(driverFiles, tokenDirectory), ReadOnly: true,
		})
	}
	return mounts
}

// takes reports whether the licence has this name in driverFiles.
func (l licence) takes(name string) bool {
	return l.isSet() && name == licenceFile || l.token && name == tokenDirectory
}

func (l licence) volumes() []corev1.Volume {
	var volumes []corev1.Volume
	if l.isSet() {
		volumes = append(volumes, volume(labels.LicenceVolume, l.source(licenceFile)))
	}
	if l.token {
		volumes = append(volumes, volume(labels.LicenceTokenVolume, l.source(labels.LicenceTokenKey)))
	}
	return volumes
}

func (l licence) source(key string) corev1.VolumeSource {
	if l.Kind == operand.ConfigMap {
		return configMapSource(l.Name, key)
	}
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: l.Name, Items: items(key)}}
}
