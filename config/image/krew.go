package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// pluginName is the name of the plugin: of its command, kubectl gpu, and of its manifest.
	pluginName = "gpu"
	// pluginProgram is the name of its program.
	pluginProgram = "kubectl-" + pluginName
	// krewVersion is the version of the format, see https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
	krewVersion = "krew.googlecontainertools.github.com/v1alpha2"
)

// pluginPlatforms are those that the plugin is released for, as OS/ARCH.
var pluginPlatforms = []string{
	"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64",
}

// krewManifest is a plugin of kubectl for krew, its package manager.
type krewManifest struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   map[string]string `yaml:"metadata"`
	Spec       krewSpec          `yaml:"spec"`
}

type krewSpec struct {
	// Version has the prefix v.
	Version          string         `yaml:"version"`
	Homepage         string         `yaml:"homepage"`
	ShortDescription string         `yaml:"shortDescription"`
	Description      string         `yaml:"description"`
	Caveats          string         `yaml:"caveats"`
	Platforms        []krewPlatform `yaml:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	} `yaml:"selector"`
	URI    string `yaml:"uri"`
	SHA256 string `yaml:"sha256"`
	Bin    string `yaml:"bin"`
}

// checkPlatforms refuses platforms that the plugin is not released for.
func (o releaseOptions) checkPlatforms() error {
	if len(o.platforms()) == 0 {
		return fmt.Errorf("--plugin-platforms is empty: give some of %s", strings.Join(pluginPlatforms, ","))
	}
	for _, platform := range o.platforms() {
		if !slices.Contains(pluginPlatforms, platform) {
			return fmt.Errorf("--plugin-platforms has %q: give some of %s", platform, strings.Join(pluginPlatforms, ","))
		}
	}
	return nil
}

// platforms are those of the flag.
func (o releaseOptions) platforms() []string {
	return strings.FieldsFunc(o.pluginPlatforms, func(r rune) bool { return r == ',' })
}

// plugin writes an archive of the plugin for each platform, and the manifest by which krew installs them from the page
// of the release.
func (r *releaser) plugin(ctx context.Context) error {
	manifest := krewManifest{
		APIVersion: krewVersion, Kind: "Plugin", Metadata: map[string]string{"name": pluginName},
		Spec: krewSpec{
			Version: r.version, Homepage: labels()["org.opencontainers.image.source"],
			ShortDescription: "Show, explain and compare the state of NVIDIA GPU nodes",
			Description: "Shows how far each GPU node of the GPU operator is and what is free, explains why a node\n" +
				"or a pod has no GPU, shows the usage of GPUs, compares a policy with the cluster, and\n" +
				"collects a support bundle without credentials.\n",
			Caveats: "For completion, put the output of kubectl gpu completion kubectl on your PATH as the\n" +
				"executable kubectl_complete-gpu.\n",
		},
	}
	for _, platform := range r.platforms() {
		described, err := r.pluginFor(ctx, platform)
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, described)
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("encoding the manifest of the plugin: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.out, pluginName+".yaml"), text, 0o644); err != nil {
		return fmt.Errorf("writing the manifest of the plugin: %w", err)
	}
	return nil
}

// pluginFor writes the archive for a platform.
func (r *releaser) pluginFor(ctx context.Context, platform string) (krewPlatform, error) {
	system, arch, _ := strings.Cut(platform, "/")
	dir := filepath.Join(r.work, "plugin-"+system+"-"+arch)
	if err := r.run(ctx, []string{"GOOS=" + system, "GOARCH=" + arch, "VERSION=" + r.version},
		filepath.Join(r.root, "config/image/build.sh"), "plugin", dir); err != nil {
		return krewPlatform{}, err
	}
	packed, err := pack(dir)
	if err != nil {
		return krewPlatform{}, fmt.Errorf("packing the plugin for %s: %w", platform, err)
	}
	file := fmt.Sprintf("%s-%s-%s.tar.gz", pluginProgram, system, arch)
	if err := os.WriteFile(filepath.Join(r.out, file), packed, 0o644); err != nil {
		return krewPlatform{}, fmt.Errorf("writing the plugin for %s: %w", platform, err)
	}
	described := krewPlatform{
		URI:    labels()["org.opencontainers.image.source"] + "/releases/download/" + r.version + "/" + file,
		SHA256: fmt.Sprintf("%x", sha256.Sum256(packed)), Bin: pluginProgram,
	}
	if system == "windows" {
		described.Bin += ".exe"
	}
	described.Selector.MatchLabels = map[string]string{"os": system, "arch": arch}
	return described, nil
}
