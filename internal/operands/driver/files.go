package driver

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// configMapFiles are ConfigMaps whose keys are added as files to directories of an image. Each file is mounted on its
// own: a ConfigMap that is mounted as a whole would hide what the image has in the directory.
type configMapFiles []configMapDirectory

type configMapDirectory struct {
	// Volume with the ConfigMap.
	Volume string
	// Directory in the image.
	Directory string
	ConfigMap string
	Keys      []string
}

// add appends a ConfigMap that has keys, unless no directory is known for them.
func (f *configMapFiles) add(in operand.Input, volume, directory, configMap string) {
	if keys := in.KeysOf(configMap); directory != "" && len(keys) > 0 {
		*f = append(*f, configMapDirectory{volume, directory, configMap, keys})
	}
}

func (f configMapFiles) volumes() []corev1.Volume {
	var volumes []corev1.Volume
	for _, dir := range f {
		volumes = append(volumes, volume(dir.Volume, configMapSource(dir.ConfigMap)))
	}
	return volumes
}

func (f configMapFiles) mounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, dir := range f {
		for _, key := range dir.Keys {
			mounts = append(mounts, fileMount(dir.Volume, key, path.Join(dir.Directory, key)))
		}
	}
	return mounts
}

// packageFiles are the user's repositories and certificates. A precompiled driver needs neither.
func packageFiles(in operand.Input, pool nodeinfo.Pool) (files configMapFiles) {
	if pool.Kernel != "" {
		return nil
	}
	system := systems[osID(pool.OSTag)]
	files.add(in, "repo-config", system.repositories, repoConfig(in))
	files.add(in, "cert-config", system.certificates, certConfig(in))
	return files
}

// trustStores returns the file for spec.global.caBundle in each container that installs packages.
func trustStores(pool nodeinfo.Pool) map[string]string {
	system := systems[osID(pool.OSTag)]
	if pool.Kernel != "" || system.bundle == "" {
		return nil
	}
	file := path.Join(system.certificates, system.bundle)
	return map[string]string{mainContainer: file, gdsContainer: file, gdrcopyContainer: file}
}

// moduleFiles are the user's parameters of kernel modules, in files with the names of the modules. The driver container
// reads them in this directory.
func moduleFiles(in operand.Input) (files configMapFiles) {
	files.add(in, "module-config", "/drivers", string(in.Spec.Driver.KernelModuleConfig.Name))
	return files
}
