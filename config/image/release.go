package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// architectures are those of the released images.
var architectures = []string{"amd64", "arm64"}

// releaseOptions are the flags of command release.
type releaseOptions struct {
	root, version, revision, created, registry string
	base, catalogBase, replaces                string
	out, pluginPlatforms                       string
	push                                       bool
}

// releaseVersion is a version as in the tag of a commit. Build metadata cannot be part of an image's tag.
var releaseVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// releaseCommand builds a release from the command line.
func releaseCommand(ctx context.Context, args []string, progress io.Writer) error {
	o := releaseOptions{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "the repository")
	flags.StringVar(&o.version, "version", "", "version of the release, such as v1.2.3")
	flags.StringVar(&o.revision, "revision", "unknown", "commit of the release")
	flags.StringVar(&o.created, "created", "", "time of the commit, in RFC 3339")
	flags.StringVar(&o.registry, "registry", "", "registry and path of the images and the chart")
	flags.StringVar(&o.base, "base", "", "image to put the programs on; scratch for none (default that of the Dockerfile)")
	flags.StringVar(&o.catalogBase, "catalog-base", noBase, "image with opm to put the catalogue on; scratch for none")
	flags.StringVar(&o.replaces, "replaces", "",
		"version of the release before, for the bundle and the notes (default none)")
	flags.StringVar(&o.out, "out", "../../dist", "folder of the release; one in it is replaced")
	flags.StringVar(&o.pluginPlatforms, "plugin-platforms", strings.Join(pluginPlatforms, ","),
		"platforms that the plugin of kubectl is built for")
	flags.BoolVar(&o.push, "push", false, "push the images and the chart")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := o.complete(); err != nil {
		return err
	}
	return makeRelease(ctx, o, progress)
}

// complete checks the options and fills in the base image.
func (o *releaseOptions) complete() (err error) {
	if !releaseVersion.MatchString(o.version) {
		return fmt.Errorf("--version %q is no version of a release: give one such as v1.2.3", o.version)
	}
	if _, err := name.NewRepository(o.registry+"/gpu-operator", name.StrictValidation); err != nil {
		return fmt.Errorf("--registry must be a registry with a path, such as registry.example.com/gpu: %w", err)
	}
	if err := o.checkPlatforms(); err != nil {
		return err
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return fmt.Errorf("--root: %w", err)
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if o.base == "" {
		o.base, err = dockerfileBase(filepath.Join(o.root, "Dockerfile"))
	}
	return err
}

// dockerfileBase returns the base image in the Dockerfile.
func dockerfileBase(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the base image: %w", err)
	}
	found := regexp.MustCompile(`(?m)^ARG BASE_IMAGE=(\S+)$`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("reading the base image: %s has no line that begins with ARG BASE_IMAGE=", path)
	}
	return string(found[1]), nil
}

// chartVersion is the version of chart and bundle, which have no prefix v.
func (o releaseOptions) chartVersion() string { return strings.TrimPrefix(o.version, "v") }

// artifact is one image, index or chart of the release.
type artifact struct {
	tag     name.Tag
	content v1.ImageIndex
	image   v1.Image // Instead of content, for one that is the same for all architectures.
}

func (a artifact) digest() (v1.Hash, error) {
	if a.image != nil {
		return a.image.Digest()
	}
	return a.content.Digest()
}

// reference returns the name of the artifact by its digest.
func (a artifact) reference() (string, error) {
	digest, err := a.digest()
	if err != nil {
		return "", fmt.Errorf("computing the digest of %s: %w", a.tag, err)
	}
	return a.tag.Repository.Name() + "@" + digest.String(), nil
}

// artifactOf returns an artifact without content, by its path in the registry.
func (o releaseOptions) artifactOf(path, tag string) (artifact, error) {
	parsed, err := name.NewTag(o.registry+"/"+path+":"+tag, name.StrictValidation)
	if err != nil {
		return artifact{}, fmt.Errorf("naming %s: %w", path, err)
	}
	return artifact{tag: parsed}, nil
}

// makeRelease writes all files of a release to o.out, and pushes them if wanted. The same sources give the same
// files. Each part names those before it by digest: chart, install.yaml and bundle the image, the catalogue the
// bundle.
func makeRelease(ctx context.Context, o releaseOptions, progress io.Writer) (err error) {
	if err := makeEmpty(o.out); err != nil {
		return fmt.Errorf("emptying --out: %w", err)
	}
	work, err := os.MkdirTemp("", "gpu-operator-release-")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r := &releaser{releaseOptions: o, work: work, progress: progress}
	for _, part := range []func(context.Context) error{
		r.operator, r.manifest, r.chart, r.bundle, r.catalog, r.plugin, r.notes,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if err := r.list(); err != nil {
		return err
	}
	if !o.push {
		return nil
	}
	return r.pushAll(ctx)
}

// makeEmpty creates the folder of a release, or removes the release in it. It refuses a folder with anything else.
func makeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Stat(filepath.Join(dir, checksums))
	if len(entries) > 0 && err != nil {
		return fmt.Errorf("%s has files that are no release: remove them, or name another folder", dir)
	}
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

// releaser makes the parts of a release in order.
type releaser struct {
	releaseOptions
	work     string
	progress io.Writer
	// image and bundleImage are the images of operator and bundle by their digests.
	image, bundleImage string
	// artifacts are in the order in which they are pushed, so that none names another that is missing.
	artifacts []artifact
	// lines are those of images.txt.
	lines []string
}

// add takes an artifact into the release and returns its name by digest.
func (r *releaser) add(label string, a artifact) (string, error) {
	reference, err := a.reference()
	if err != nil {
		return "", err
	}
	r.artifacts = append(r.artifacts, a)
	r.lines = append(r.lines, label+" "+reference)
	fmt.Fprintf(r.progress, "%s %s\n", a.tag, reference)
	return reference, nil
}

// operator builds the operator's image for all architectures, with the SBOM of each.
func (r *releaser) operator(ctx context.Context) error {
	a, err := r.artifactOf("gpu-operator", r.version)
	if err != nil {
		return err
	}
	images := map[string]v1.Image{}
	var lines []string
	for _, arch := range architectures {
		rootfs := filepath.Join(r.work, arch)
		if err := r.run(ctx, []string{"GOARCH=" + arch, "VERSION=" + r.version},
			filepath.Join(r.root, "config/image/build.sh"), "rootfs", rootfs); err != nil {
			return err
		}
		o := options{rootfs: rootfs, arch: arch, version: r.version, revision: r.revision, base: r.base}
		if images[arch], err = build(ctx, o); err != nil {
			return err
		}
		if err := writeSBOM(o, filepath.Join(r.out, "gpu-operator-"+arch+".cdx.json")); err != nil {
			return err
		}
		digest, err := images[arch].Digest()
		if err != nil {
			return fmt.Errorf("computing the digest of the image for %s: %w", arch, err)
		}
		lines = append(lines, "gpu-operator-"+arch+" "+a.tag.Repository.Name()+"@"+digest.String())
	}
	a.content = multiArch(images)
	if r.image, err = r.add("gpu-operator", a); err != nil {
		return err
	}
	r.lines = append(r.lines, lines...)
	return r.archive(a, "gpu-operator")
}

// manifest writes install.yaml, for clusters without Helm or OLM.
func (r *releaser) manifest(ctx context.Context) error {
	return r.run(ctx, nil, "make", "--no-print-directory", "build-installer", "IMG="+r.image, "DIST="+r.out)
}

// chart writes the chart as a package, and as what helm pulls from a registry.
func (r *releaser) chart(ctx context.Context) error {
	dir := filepath.Join(r.work, "chart")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	a, err := r.artifactOf("charts/gpu-operator", r.chartVersion())
	if err != nil {
		return err
	}
	source := "oci://" + a.tag.Repository.Name() + " --version " + r.chartVersion()
	if err := r.run(ctx, nil, "go", "run", "./config/helm/generate", "-version", r.chartVersion(), "-image", r.image,
		"-source", source, "-out", filepath.Join(dir, "gpu-operator")); err != nil {
		return err
	}
	packed, err := pack(dir)
	if err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.out, "gpu-operator-"+r.chartVersion()+".tgz"), packed, 0o644); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	if a.image, err = chartImage(filepath.Join(dir, "gpu-operator"), packed); err != nil {
		return fmt.Errorf("making the chart's artifact: %w", err)
	}
	_, err = r.add("chart", a)
	return err
}

// run runs a command in the repository; the error has its output.
func (r *releaser) run(ctx context.Context, env []string, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = r.root
	// make must not hand down its own flags, as -n.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "MAKEFLAGS=") || strings.HasPrefix(variable, "MAKEOVERRIDES=")
	}), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, text)
	}
	return nil
}

// archive writes an artifact as a file that needs no registry.
func (r *releaser) archive(a artifact, file string) error {
	path := filepath.Join(r.out, file+".oci.tar")
	if err := save(holding(a), path, nil); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
