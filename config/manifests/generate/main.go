package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// release describes the release of a bundle.
type release struct {
	// version is a semantic version without the prefix v.
	version string
	// image of the operator; empty for the placeholder in config/manager, which only a working tree may have.
	image string
	// created is the release time in RFC 3339; empty for a working tree, so that its bundle does not change by time.
	created string
	// bundleImage is where the bundle is pulled from, for the catalogue; empty for none.
	bundleImage string
	// replaces is the version of the release before, without the prefix v; empty for none.
	replaces string
	// digests of default images, which the bundle then names by them.
	digests digests
}

// channels returns the channels of the release and the default one. They are named as in NVIDIA's catalogue: stable,
// and one for each minor release, which is the default. A release before the first of a version is in neither.
func (r release) channels() (all []string, fallback string) {
	if r.isPrerelease() {
		return []string{"alpha"}, "alpha"
	}
	minor := semver.MajorMinor("v" + r.version)
	return []string{"stable", minor}, minor
}

func (r release) maturity() string {
	if r.isPrerelease() {
		return "alpha"
	}
	return "stable"
}

func (r release) isPrerelease() bool { return semver.Prerelease("v"+r.version) != "" }

// check refuses versions that OLM cannot compare.
func (r release) check() error {
	for flag, value := range map[string]string{"version": r.version, "replaces": cmp.Or(r.replaces, workingTree)} {
		if semver.Canonical("v"+value) != "v"+value {
			return fmt.Errorf("-%s %q is not a semantic version: give one such as 1.2.3", flag, value)
		}
	}
	if r.replaces != "" && semver.Compare("v"+r.replaces, "v"+r.version) >= 0 {
		return fmt.Errorf("-replaces %s must be older than -version %s", r.replaces, r.version)
	}
	return nil
}

// catalogFile is the path of the catalogue beside the bundle.
const catalogFile = "catalog.yaml"

// workingTree is the version of an unreleased bundle.
const workingTree = "0.0.0-dev"

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// command writes a bundle, or lists images, as the command line says.
func command() (err error) {
	r, out, digestFile := release{}, "", ""
	flag.StringVar(&r.version, "version", workingTree, "semantic version of the release, without the prefix v")
	flag.StringVar(&r.image, "image", "", "image of the operator; required for a release")
	flag.StringVar(&r.created, "created", "", "time of the release, in RFC 3339 (default none)")
	flag.StringVar(&r.bundleImage, "bundle-image", "",
		"image of the bundle, by digest: adds "+catalogFile+" for a catalogue (default none)")
	flag.StringVar(&r.replaces, "replaces", "", "version of the release before, without the prefix v (default none)")
	flag.StringVar(&digestFile, "digests", "",
		"file with default images and their digests, by which the bundle names them (default none)")
	flag.StringVar(&out, "out", "bundle", "folder of the bundle; its contents are replaced")
	list := flag.Bool("list-images", false, "only print the images that -digests may have")
	flag.Parse()
	if *list {
		return listImages(os.Stdout)
	}
	if r.digests, err = readDigests(digestFile); err != nil {
		return err
	}
	return run(".", out, r)
}

// listImages prints the images that may be pinned.
func listImages(to io.Writer) error {
	names, err := unpinned()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, strings.Join(names, "\n"))
	return err
}

// run writes the bundle of the repository in folder root.
func run(root, out string, r release) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.version != workingTree && r.image == "" {
		return errors.New("-image is not set: give the operator's image of the release")
	}
	files, err := generate(root, r)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("removing the old bundle: %w", err)
	}
	for name, content := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("creating the folder of %s: %w", name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// generate returns the files of the bundle by their paths in it.
func generate(root string, r release) (map[string][]byte, error) {
	parts, err := read(filepath.Join(root, "config/manifests"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"metadata/annotations.yaml":   annotations(r),
		"tests/scorecard/config.yaml": scorecard(),
		"bundle.Dockerfile":           dockerfile(r),
	}
	if files["admission.yaml"], err = admissionPolicies(parts.notCarried); err != nil {
		return nil, err
	}
	for _, object := range parts.beside {
		if files["manifests/"+fileOf(object)], err = marshal(object.Object); err != nil {
			return nil, err
		}
	}
	csv, err := clusterServiceVersion(root, parts, r)
	if err != nil {
		return nil, err
	}
	if r.bundleImage != "" {
		if files[catalogFile], err = catalog(csv, parts, r); err != nil {
			return nil, err
		}
	}
	files["manifests/gpu-operator.clusterserviceversion.yaml"], err = marshal(csv)
	return files, err
}
