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
		Example: `  kubectl gpu mirror list
  kubectl gpu mirror script -f policy.yaml --to mirror.local:5000 > copy.sh`,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("give list or script")
		},
	}
	command.AddCommand(
		mirrorOf("list", "List the images that the operator and a policy use on these nodes",
			`List the images that the operator and a policy use on these nodes, as references at their source, sorted.
spec.global.registry does not change them.`,
			`  kubectl gpu mirror list
  kubectl get nodes -o yaml > nodes.yaml
  kubectl gpu mirror list -f policy.yaml --nodes nodes.yaml # without a cluster`, printImages),
		mirrorOf("script", "Print the commands of skopeo that copy these images to a mirror",
			`Print a shell script that copies the images of mirror list to a registry with skopeo, with all their platforms,
under the names that the operator looks for with spec.global.registry. The registry is that field of the policy, or
--to.`,
			`  kubectl gpu mirror script --to mirror.local:5000 | sh
  kubectl gpu mirror script -f policy.yaml --nodes nodes.yaml --to mirror.local:5000 | sh # without a cluster`,
			printScript),
	)
	return command
}

// mirrorOf returns a command that prints the images of a policy in a form.
func mirrorOf(
	use, short, long, example string, form func(out io.Writer, images []string, registry string) error,
) *cobra.Command {
	o := mirrorOptions{render: renderOptions{atSource: true}}
	command := &cobra.Command{
		Use:   use + " [-f POLICY] [--nodes NODES]",
		Short: short,
		Long: long + `

The policy and the nodes are those of the cluster, read with the rights of kubectl gpu plan, unless files replace them.
With both files no cluster is called. Drivers have an image for each operating system, and if they are precompiled for
each kernel, so that the nodes matter: give a file with one of each kind if others will join. For Red Hat CoreOS in two
files give --driver-toolkit-images, too.

Exit codes: 0 success; 1 the cluster or a file cannot be read, or the API server or the operator would refuse a part of
the policy, as standard error has it: the images of the rest are printed; 2 wrong usage.`,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.render.check(); err != nil {
				return err
			}
			if err := o.run(cmd, form); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	o.render.addSources(command)
	if use == "script" {
		command.Flags().StringVar(&o.to, "to", "",
			"registry of the mirror, such as mirror.local:5000 (default: spec.global.registry)")
	}
	return command
}

// run prints the images. What would be refused or not be applied, so that its image is missing, goes to standard error;
// if something would be refused, it fails after that.
func (o mirrorOptions) run(
	cmd *cobra.Command, form func(out io.Writer, images []string, registry string) error,
) error {
	found, err := o.render.compute(cmd)
	if err != nil {
		return err
	}
	if err := form(cmd.OutOrStdout(), sortedImages(found), cmp.Or(o.to, found.mirror)); err != nil {
		return err
	}
	for _, sentence := range found.imageNotes {
		fmt.Fprintln(cmd.ErrOrStderr(), sentence)
	}
	return found.refused
}

// sortedImages returns the images of the operator and of all objects, sorted.
func sortedImages(found *rendition) []string {
	names := map[string]bool{found.operatorImage: true}
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
		// What is in the mirror stays there, such as an image of the operator whose source nothing shows.
		if target := image.Mirror(registry, source); target != source {
			lines = append(lines, fmt.Sprintf("skopeo copy --all 'docker://%s' 'docker://%s'", source, target))
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
