package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterpolicy/gpu-operator/internal/names/viewer"
)

// bindingText returns how an administrator gives a user the rights that a command lacks; empty if the error is another
// one, or the command does more than to read.
func bindingText(command *cobra.Command, err error) string {
	for command.HasParent() && command.Parent().HasParent() { // The rights of top nodes are those of top.
		command = command.Parent()
	}
	if !apierrors.IsForbidden(err) || viewer.Of(command.Name()) == nil {
		return ""
	}
	but := ""
	if slices.ContainsFunc(viewer.Of(command.Name()), func(r viewer.Right) bool { return r.Resource == viewer.Proxied }) {
		but = ", but not to get " + viewer.Proxied + ", which is to be granted apart"
	}
	return fmt.Sprintf("The ClusterRole %s has the rights that kubectl gpu %s needs%s. An administrator binds it to the "+
		"user that the error names:\n  kubectl create clusterrolebinding %[1]s-USER --clusterrole=%[1]s --user=USER\n",
		viewer.ClusterRole, command.Name(), but)
}
