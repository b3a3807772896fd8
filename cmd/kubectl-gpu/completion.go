package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// completionTime bounds how long a shell waits for names.
const completionTime = 5 * time.Second

// completer returns the names that begin with what the user has typed.
type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// script is what kubectl runs for completion: the program kubectl_complete-NAME of a plugin.
const script = `#!/bin/sh
# kubectl runs this for the completion of kubectl gpu, if it is named kubectl_complete-gpu and on the PATH.
exec kubectl gpu __complete "$@"
`

// addCompletion adds the completion command of cobra, with the script of kubectl. The output of root must be set: cobra
// takes it here.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	for _, command := range root.Commands() {
		if command.Name() != "completion" {
			continue
		}
		command.Short = "Print a script for the completion of a shell, or of kubectl"
		command.AddCommand(&cobra.Command{
			Use:   "kubectl",
			Short: "Print the script by which kubectl completes kubectl gpu",
			Long: `Print the script by which kubectl completes kubectl gpu in each shell in which its own completion is set up.
It must be executable, on the PATH, and named kubectl_complete-gpu. It completes commands, flags and their values, and
the names of nodes, pods and namespaces of the cluster.`,
			Example: `  kubectl gpu completion kubectl > ~/.local/bin/kubectl_complete-gpu
  chmod +x ~/.local/bin/kubectl_complete-gpu`,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprint(cmd.OutOrStdout(), script)
				return err
			},
		})
	}
}

// completeFlag sets the completion of a flag that the command has.
func completeFlag(command *cobra.Command, flag string, with completer) {
	if err := command.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // The flag is defined by the caller.
	}
}

// requireFlags marks flags as required that the command has.
func requireFlags(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := command.MarkFlagRequired(flag); err != nil {
			panic(err) // The flag is defined by the caller.
		}
	}
}

// fixed completes one of the values.
func fixed(values ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// completing completes names of the cluster, without those that are already given. Errors give no names: there is no
// place to print them.
func completing(c *connection, names func(context.Context, *cobra.Command, *session) ([]string, error)) completer {
	return func(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTime)
		defer cancel()
		asked, err := c.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all, err := names(ctx, cmd, asked)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all = slices.DeleteFunc(all, func(name string) bool {
			return !strings.HasPrefix(name, typed) || slices.Contains(given, name)
		})
		slices.Sort(all)
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// nodeNames are those of the nodes with GPUs.
func nodeNames(ctx context.Context, _ *cobra.Command, asked *session) ([]string, error) {
	return namesOf(ctx, asked, "nodes", "", gpuNodes)
}

// namespaceNames are those of all namespaces.
func namespaceNames(ctx context.Context, _ *cobra.Command, asked *session) ([]string, error) {
	return namesOf(ctx, asked, "namespaces", "", metav1.ListOptions{})
}

// podNames are those of the pods in the namespace of the flag, or of the context, that are of no operand.
func podNames(ctx context.Context, cmd *cobra.Command, asked *session) ([]string, error) {
	namespace := cmp.Or(cmd.Flag("namespace").Value.String(), asked.namespace)
	return namesOf(ctx, asked, "pods", namespace,
		metav1.ListOptions{LabelSelector: labels.ManagedBy + "!=" + labels.ManagedByValue})
}

// explainable are nodes, and pods as pod/NAME.
func explainable(ctx context.Context, cmd *cobra.Command, asked *session) ([]string, error) {
	names, err := nodeNames(ctx, cmd, asked)
	if err != nil {
		return nil, err
	}
	pods, err := podNames(ctx, cmd, asked)
	for _, pod := range pods {
		names = append(names, "pod/"+pod)
	}
	return names, err
}

// namesOf returns the names of objects of a core resource.
func namesOf(
	ctx context.Context, asked *session, resource, namespace string, options metav1.ListOptions,
) ([]string, error) {
	var names []string
	_, err := list(ctx, asked.headers(resource, namespace), options,
		func(object *metav1.PartialObjectMetadata) { names = append(names, object.Name) })
	return names, err
}
