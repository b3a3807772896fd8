package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
)

// planOptions are the flags of plan.
type planOptions struct {
	policy, against   string
	namespace, output string
	detailedExit      bool
	connection        connection
}

func planCommand() *cobra.Command {
	o := planOptions{}
	command := &cobra.Command{
		Use:   "plan [-f POLICY]",
		Short: "Print what an edit of the policy would change, and which nodes would be upgraded, without writing",
		Long: `Print what the operator would do if the ClusterPolicy in a file replaced the one in the cluster: which objects
change, which pods are replaced, which nodes get another driver, in which order, and which pods on them would be evicted
or block the upgrade. It begins with what that means: which nodes lose their GPUs, and how many restart the driver.
Nothing is written.

Without a file, the policy is the one in the cluster. The default images are those of this plugin's release: a plugin of
a newer release shows which images change, which pods are replaced and which drivers are upgraded when the operator is
upgraded to it.

The file has the complete spec: a field that it does not have counts as removed. NVIDIADrivers, and ConfigMaps, Secrets
and PriorityClasses that the policy names, count as applied with it if they are in the file. What the API server would
refuse of the policy and of NVIDIADrivers is noted, but for rules that compare them with those of the cluster; kubectl
apply --dry-run=server has these, too. An object that was not read counts as existing, and is noted.

Some DaemonSets of drivers are created later, when driver upgrades move the first node to them, or deleted when the last
node has moved: such a change is marked.

Reading the cluster needs the right to list Nodes, ClusterPolicies, NVIDIADrivers, RuntimeClasses, Pods and
PodDisruptionBudgets, to list DaemonSets, Deployments, Services, ConfigMaps, ServiceMonitors and PrometheusRules in the
operator's namespace, and to get CustomResourceDefinitions, the ValidatingAdmissionPolicyBindings of the operator, and
the PriorityClasses that the policy names. Secrets that the policy names are read, too; without the right to get them
they count as existing, and are noted. It lists ResourceClaims if a pod has any; those that it cannot read count as
GPUs. On OpenShift it lists Proxies and ClusterVersions, too (config.openshift.io), with a note if it cannot, and gets
the ImageStreams of the driver toolkit. --against reads the objects from a file instead; on OpenShift it needs those
two, as well.

The order of the nodes is that of the operator, with the budget of the policy. Other nodes that become unavailable
meanwhile delay it. Exit codes: 0 success, 1 failure, or the API server or the operator would refuse a part of it, 2
wrong usage, and with --detailed-exitcode 3 if drivers would be upgraded.`,
		Example: `  kubectl gpu plan -f policy.yaml
  kubectl get nodes,clusterpolicies,runtimeclasses,pods,pdb,daemonsets,deployments,services,configmaps,\
  priorityclasses,validatingadmissionpolicybindings -A -o yaml > cluster.yaml
  kubectl gpu plan -f policy.yaml --against cluster.yaml -o json
  kubectl gpu plan # before an upgrade of the operator, with the plugin of the new release`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.policy == stdin && o.against == stdin {
				return errors.New("the policy and the objects cannot both come from standard input: give one of them as a file")
			}
			if err := oneOf("output", o.output, formats); err != nil {
				return err
			}
			found, err := o.run(cmd)
			if err != nil {
				return failure{err}
			}
			if o.detailedExit && found.Disturbs() {
				return errUpgradesHappen
			}
			return nil
		},
	}
	o.addFlags(command)
	command.Flags().BoolVar(&o.detailedExit, "detailed-exitcode", false,
		fmt.Sprintf("exit with %d if drivers would be upgraded", exitUpgrades))
	return command
}

// addFlags adds the flags that plan and diff have.
func (o *planOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	addPolicyFile(flags, &o.policy)
	flags.StringVar(&o.against, "against", "",
		"file with objects of a cluster, as kubectl get -o yaml prints them, which are read instead of a cluster; - reads "+
			"standard input")
	flags.StringVarP(&o.namespace, "namespace", "n", "", operatorNamespaceUsage)
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output: text, json or yaml")
	o.connection.addFlags(flags)
	completeFlag(command, "output", fixed(formats...))
	completeFlag(command, "namespace", completing(&o.connection, namespaceNames))
}

func (o planOptions) run(cmd *cobra.Command) (*preview.Preview, error) {
	found, err := o.compute(cmd)
	if err != nil {
		return nil, err
	}
	if err := printPreview(cmd.OutOrStdout(), found, o.output); err != nil {
		return nil, err
	}
	return found, errRefused(found)
}

// compute reads the policy and the cluster.
func (o planOptions) compute(cmd *cobra.Command) (*preview.Preview, error) {
	file := &policyFile{}
	if o.policy != "" {
		var err error
		if file, err = readPolicy(o.policy, cmd.InOrStdin()); err != nil {
			return nil, fmt.Errorf("reading the policy %s: %w", o.policy, err)
		}
	}
	edit := file.edit()
	var cluster *preview.Cluster
	var err error
	if o.against != "" {
		cluster, err = o.readFile(cmd.InOrStdin())
	} else {
		cluster, err = o.askCluster(cmd.Context(), edit)
	}
	if err != nil {
		return nil, err
	}
	refused, err := file.refusals(cmd.Context(), cluster, false)
	if err != nil {
		return nil, err
	}
	found, err := preview.Of(cluster, edit, time.Now())
	if err != nil {
		return nil, err
	}
	// Never nil: in JSON they are a list, not null.
	found.Notes = append(append([]string{}, refused.sentences...), found.Notes...)
	found.Refused = refused.objects
	broken, err := undecodableNotes(found.Policy, cluster, edit)
	found.Notes = append(found.Notes, broken...)
	return found, err
}
