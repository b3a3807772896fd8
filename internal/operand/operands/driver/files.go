package driver

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
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

// add appends a ConfigMap with these keys, unless there are none or no directory is known for them.
func (f *configMapFiles) add(volume, directory, configMap string, keys []string) {
	if directory != "" && len(keys) > 0 {
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
	files.add("repo-config", system.repositories, repoConfig(in), in.KeysOf(repoConfig(in)))
	files.add("cert-config", system.certificates, certConfig(in), in.KeysOf(certConfig(in)))
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

// driverFiles is the directory of the image in which the driver container reads parameters of modules and the licence.
const driverFiles = "/drivers"

// moduleFiles are the user's parameters of kernel modules, in files with the names of the modules. They do not hide the
// licence, whose field is for that file only: the API server refuses pods with two files of one path.
func moduleFiles(in operand.Input) (files configMapFiles) {
	keys, _ := moduleKeys(in)
	files.add("module-config", driverFiles, string(in.Spec.Driver.KernelModuleConfig.Name), keys)
	return files
}

// moduleKeys returns the keys of spec.driver.kernelModuleConfig that are mounted, and those that the licence hides.
func moduleKeys(in operand.Input) (mounted, hidden []string) {
	licence := licenceOf(in)
	for _, key := range in.KeysOf(string(in.Spec.Driver.KernelModuleConfig.Name)) {
		if licence.takes(key) {
			hidden = append(hidden, key)
			continue
		}
		mounted = append(mounted, key)
	}
	return mounted, hidden
}

// doubtful reports the keys that the licence hides, and the parameters that no module takes.
func doubtful(in operand.Input) []string {
	mounted, hidden := moduleKeys(in)
	notes := in.FileNotes(moduleConfig(in), mounted...)
	if in.PoolCriteria().Kernel {
		notes = append(notes, unusedByPrecompiled(in)...)
	}
	for _, key := range hidden {
		notes = append(notes, fmt.Sprintf("spec.driver.kernelModuleConfig.name: key %s of ConfigMap %s is not mounted, as "+
			"%s has the same file: remove the key", key, in.Spec.Driver.KernelModuleConfig.Name, licenceOf(in).Field))
	}
	return notes
}

// doubtfulOnPool reports the repositories and certificates that the system of a driver pool does not read, because of
// their names.
func doubtfulOnPool(in operand.Input, pool nodeinfo.Pool) []string {
	if pool.Kernel != "" {
		return nil
	}
	id := osID(pool.OSTag)
	note := func(field, configMap string, names []string) (notes []string) {
		for _, key := range in.KeysOf(configMap) {
			isRead := func(name string) bool { return strings.HasSuffix(key, name) }
			if len(names) > 0 && !slices.ContainsFunc(names, isRead) {
				notes = append(notes, fmt.Sprintf("%s: key %s of ConfigMap %s is not read on %s: its name must be or end with %s",
					in.Field(field), key, configMap, id, strings.Join(names, " or ")))
			}
		}
		return notes
	}
	return append(note("spec.driver.repoConfig.configMapName", repoConfig(in), systems[id].repositoryNames),
		note("spec.driver.certConfig.name", certConfig(in), systems[id].certificateNames)...)
}

// unusedByPrecompiled returns a sentence for each field that a precompiled driver, which builds nothing, does not need.
func unusedByPrecompiled(in operand.Input) (notes []string) {
	for _, field := range []struct{ name, value string }{
		{"spec.driver.repoConfig.configMapName", repoConfig(in)},
		{"spec.driver.certConfig.name", certConfig(in)},
		{"spec.driver.secretEnv", string(in.Spec.Driver.SecretEnv)},
	} {
		if field.value != "" {
			notes = append(notes, in.Field(field.name)+": has no effect with usePrecompiled, as nothing is built: remove it")
		}
	}
	return notes
}
