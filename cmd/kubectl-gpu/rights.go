package main

import (
	"fmt"

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
	return fmt.Sprintf("The ClusterRole %s has all rights that kubectl gpu %s needs. An administrator binds it to the "+
		"user that the error names:\n  kubectl create clusterrolebinding %[1]s-USER --clusterrole=%[1]s --user=USER\n",
		viewer.ClusterRole, command.Name())
}
