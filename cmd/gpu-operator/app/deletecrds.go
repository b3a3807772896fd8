package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// deleteCRDsCommand removes the definitions from the cluster, and all objects of their kinds with them. The chart runs
// it after helm uninstall if its values request it.
func deleteCRDsCommand() *cobra.Command {
	timeout := time.Duration(0)
	cmd := &cobra.Command{
		Use:   "delete-crds",
		Short: "Delete the CustomResourceDefinitions, and all ClusterPolicies and NVIDIADrivers with them",
		Long: `Delete the CustomResourceDefinitions, and all ClusterPolicies and NVIDIADrivers with them.

It needs permission to get and delete customresourcedefinitions. It exits with 0 once the definitions are gone.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait until each definition is gone")
	return onCluster(cmd, func(config *rest.Config, _ []string) error {
		return deleteCRDs(cmd.Context(), config, timeout, cmd.OutOrStdout())
	})
}

func deleteCRDs(ctx context.Context, config *rest.Config, timeout time.Duration, out io.Writer) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	for _, definition := range crd.All() {
		if err := deleteCRD(ctx, c, definition, timeout, out); err != nil {
			return err
		}
	}
	return nil
}

func deleteCRD(
	ctx context.Context, c client.Client, own crd.Definition, timeout time.Duration, out io.Writer,
) error {
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(own.Name)
	if err := c.Delete(ctx, definition); apierrors.IsNotFound(err) {
		fmt.Fprintf(out, "CustomResourceDefinition %s does not exist\n", own.Name)
		return nil
	} else if err != nil {
		return fmt.Errorf("deleting CustomResourceDefinition %s: %w", own.Name, err)
	}
	gone := func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, timeout, true, gone); err != nil {
		return fmt.Errorf("CustomResourceDefinition %s still exists after %s: %w: check the finalizers of its "+
			"objects", own.Name, timeout, err)
	}
	fmt.Fprintf(out, "CustomResourceDefinition %s is deleted\n", own.Name)
	return nil
}
