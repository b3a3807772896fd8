package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// mirrorOptions are the flags of mirror.
type mirrorOptions struct {
	render renderOptions
	// to is the registry that images are copied to; empty for that of the policy.
	to string
}

func mirrorCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "mirror",
		Short: "List the images of a policy, or print the commands that copy them to a mirror, for an air gap",
		Args:  cobra.NoArgs,
		Example: `  kubectl gpu mirror list -f policy.yaml --nodes nodes.yaml
  kubectl gpu mirror script -f policy.yaml --nodes nodes.yaml --to mirror.local:5000 > copy.sh`,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("give list or script")
		},
	}
	command.AddCommand(
		mirrorOf("list", "List the images that the operator and a policy use on these nodes",
			`List the images that the operator and a policy use on these nodes, as references at their source, sorted.
spec.global.registry does not change them.`,
			`  kubectl get nodes -o yaml > nodes.yaml
  kubectl gpu mirror list -f policy.yaml --nodes nodes.yaml`, printImages),
		mirrorOf("script", "Print the commands of skopeo that copy these images to a mirror",
			`Print a shell script that copies the images of mirror list to a registry with skopeo, with all their platforms,
under the names that the operator looks for with spec.global.registry. The registry is that field of the policy, or
--to.`,
			`  kubectl gpu mirror script -f policy.yaml --nodes nodes.yaml --to mirror.local:5000 | sh`, printScript),
	)
	return command
}

// mirrorOf returns a command that prints the images of a policy in a form.
func mirrorOf(
	use, short, long, example string, form func(out io.Writer, images []string, registry string) error,
) *cobra.Command {
	o, env := mirrorOptions{}, []string(nil)
	command := &cobra.Command{
		Use:   use + " -f POLICY --nodes NODES",
		Short: short,
		Long: long + `

The policy and the nodes are files; no cluster is called. Drivers have an image for each operating system, and if they
are precompiled for each kernel, so that the nodes matter: list one of each kind that will join. For Red Hat CoreOS give
--driver-toolkit-images, too.

Exit codes: 0 success; 1 a file cannot be read, or the API server or the operator would refuse a part of the policy, as
standard error has it: the images of the rest are printed; 2 wrong usage.`,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.render.checkFiles(); err != nil {
				return err
			}
			var err error
			if o.render.env, err = environmentOf(env); err != nil {
				return err
			}
			if err := o.run(cmd, form); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.render.policy, "filename", "f", "", "file with the ClusterPolicy; - reads standard input")
	flags.StringVar(&o.render.nodes, "nodes", "",
		"file with the Nodes, as kubectl get nodes -o yaml prints them; - reads standard input")
	flags.StringVar(&o.render.image, "image", image.Own(), "image of the operator")
	flags.StringArrayVar(&env, "env", nil, "variable of the operator, as NAME=VALUE, such as DRIVER_IMAGE=...; may be "+
		"repeated")
	o.render.addToolkit(flags)
	o.render.addStored(flags)
	if use == "script" {
		flags.StringVar(&o.to, "to", "", "registry of the mirror, such as mirror.local:5000 (default: spec.global.registry)")
	}
	requireFlags(command, "filename", "nodes")
	return command
}

// run prints the images. What would be refused or not be applied, so that its image is missing, goes to standard error;
// if something would be refused, it fails after that.
func (o mirrorOptions) run(
	cmd *cobra.Command, form func(out io.Writer, images []string, registry string) error,
) error {
	file, err := readPolicy(o.render.policy, cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("reading the policy %s: %w", o.render.policy, err)
	}
	by, err := file.refusals(cmd.Context(), nil, o.render.stored)
	if err != nil {
		return err
	}
	registry := o.to
	if global := file.Policy.Spec.Global; global != nil {
		registry = cmp.Or(o.to, global.Registry)
		global.Registry = ""
	}
	o.render.namespace = defaultNamespace
	found, err := o.render.compute(file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	if err := form(cmd.OutOrStdout(), o.images(found), registry); err != nil {
		return err
	}
	for _, sentence := range slices.Concat(
		by.sentences, found.ignored, found.kept, aboutOperands(found.plan), aboutNodes(found.plan, found.facts),
	) {
		fmt.Fprintln(cmd.ErrOrStderr(), sentence)
	}
	return found.err(by)
}

// images returns the images at their source, sorted.
func (o mirrorOptions) images(found *rendition) []string {
	names := map[string]bool{o.render.image: true}
	for _, object := range found.objects {
		addImages(names, object)
	}
	return slices.Sorted(maps.Keys(names))
}

// addImages adds the images of the containers of an object.
func addImages(names map[string]bool, object *unstructured.Unstructured) {
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", kind)
		for _, container := range containers {
			values, isMap := container.(map[string]any)
			if !isMap {
				continue
			}
			if reference, isText := values["image"].(string); isText && reference != "" {
				names[reference] = true
			}
		}
	}
}

func printImages(out io.Writer, images []string, _ string) error {
	_, err := fmt.Fprintln(out, strings.Join(images, "\n"))
	return err
}

func printScript(out io.Writer, images []string, registry string) error {
	if registry == "" {
		return errors.New("no mirror is known: set spec.global.registry in the policy, or give --to")
	}
	lines := []string{"#!/bin/sh", "set -e"}
	for _, source := range images {
		lines = append(lines, fmt.Sprintf("skopeo copy --all 'docker://%s' 'docker://%s'", source, image.Mirror(registry,
			source)))
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
