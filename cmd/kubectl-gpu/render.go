package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// renderOptions are the flags of render, of which mirror has some.
type renderOptions struct {
	// policy and nodes are files; empty for what the cluster has.
	policy, nodes    string
	namespace, image string
	// server is the version of the cluster's Kubernetes, empty if not given.
	server     string
	monitoring bool
	// stored: the policy and the NVIDIADrivers are in a cluster as the file has them.
	stored bool
	// assignments are those of --env, and env the variables of the operator that they set.
	assignments []string
	env         environment
	// toolkit is the file with the ImageStream of OpenShift's driver toolkit, empty if not given.
	toolkit string
	// openShift is the file with OpenShift's Proxy and ClusterVersion, empty if not given.
	openShift string
	// atSource: images are those at their source, whatever mirror the policy has.
	atSource   bool
	connection connection
}

// renderHelp is the description of render.
const renderHelp = `Print every object that the operator applies for a ClusterPolicy, as YAML.

The policy and the nodes are those of the cluster, unless files replace them. -f is an edit of the policy: with it, the
objects are those that the operator would apply after kubectl apply. NVIDIADrivers, and ConfigMaps, Secrets and
PriorityClasses that the policy names, count as applied with it if they are in the file. Standard error has what the API
server or the operator would refuse, fields without effect, and what could not be read. The rights are those of kubectl
gpu plan, whose help lists them. Nothing is written.

Variables of the operator and its image are those of its Deployment: --env and --image count over them. DaemonSets of
drivers that driver upgrades will move nodes to are printed last, and standard error names them. It also names objects
that the operator leaves as they are in the cluster, such as those of a refused operand: they are not printed.

With both -f and --nodes no cluster is called. The objects are those of a first installation, in a cluster that has none
of them. Flags say what a cluster would; their defaults are those of this plugin's release. Labels that an operator has
written on the nodes do not count. Standard error lists the nodes that would keep something because of them, each
operand that would not be installed, and each one that would not run on a node. An object that the policy names and that
is not in its file counts as existing, and is listed: what follows from its content is missing, such as mounts and
digests. NVIDIADrivers must be in the file if the policy uses them (spec.driver.useNvidiaDriverCRD).

Owner references are omitted if the policy has no UID, and the digest of an object has them. The annotation with the
applied spec is omitted with -f.

Exit codes: 0 success, also if something was not read; 1 the cluster or a file cannot be read, or the API server or the
operator would refuse the policy, an operand, a node pool, an NVIDIADriver or the driver of a node: the objects of the
rest are printed; 2 wrong usage. Two files do not show whether an object of a cluster was edited: --stored says that it
was not.`

func renderCommand() *cobra.Command {
	o := renderOptions{}
	command := &cobra.Command{
		Use:   "render [-f POLICY] [--nodes NODES]",
		Short: "Print the objects that the operator applies for the policy, or would apply for another one",
		Long:  renderHelp,
		Example: `  kubectl gpu render > objects.yaml
  kubectl gpu render -f policy.yaml
  kubectl get nodes -o yaml > nodes.yaml
  kubectl gpu render -f policy.yaml --nodes nodes.yaml # without a cluster`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := o.checkServer(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if err := o.run(cmd); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	o.addSources(command)
	flags := command.Flags()
	flags.BoolVar(&o.monitoring, "monitoring", false, "the cluster serves the kinds of the Prometheus operator")
	flags.StringVar(&o.server, "server-version", "", fmt.Sprintf(
		"version of the cluster's Kubernetes, such as v%s.0, to warn if it is not supported; it does not change the objects",
		version.NewestKubernetes))
	flags.StringVar(&o.openShift, "openshift", "", "file with the Proxy and the ClusterVersion of OpenShift, as oc get "+
		labels.ProxyDefinition+","+labels.ClusterVersionDefinition+" -o yaml prints them")
	return command
}

// addSources adds the flags of render and mirror that say what is read.
func (o *renderOptions) addSources(command *cobra.Command) {
	flags := command.Flags()
	addPolicyFile(flags, &o.policy)
	flags.StringVar(&o.nodes, "nodes", "",
		"file with the Nodes, as kubectl get nodes -o yaml prints them; - reads standard input (default: those in the "+
			"cluster)")
	flags.StringVarP(&o.namespace, "namespace", "n", "", operatorNamespaceUsage)
	flags.StringVar(&o.image, "image", "", "image of the operator (default: the one in the cluster, or "+image.Own()+")")
	flags.StringArrayVar(&o.assignments, "env", nil, "variable of the operator, as NAME=VALUE, such as DRIVER_IMAGE=... "+
		"or HTTPS_PROXY=..., over the one in the cluster; may be repeated")
	flags.StringVar(&o.toolkit, "driver-toolkit-images", "",
		"file with the ImageStream of OpenShift's driver toolkit, as oc get -n openshift imagestream driver-toolkit -o "+
			"yaml prints it")
	flags.BoolVar(&o.stored, "stored", false, "the objects of the file are in a cluster, and were not edited since: what "+
		"the API server would refuse of new ones, and keeps, is only noted")
	o.connection.addFlags(flags)
	completeFlag(command, "namespace", completing(&o.connection, namespaceNames))
}

// addPolicyFile adds the flag for the file of a policy that is otherwise read from the cluster.
func addPolicyFile(flags *pflag.FlagSet, file *string) {
	flags.StringVarP(file, "filename", "f", "", "file with the ClusterPolicy; - reads standard input (default: the one "+
		"in the cluster)")
}

// check reads the variables. It fails if one is unknown, or if two files are standard input.
func (o *renderOptions) check() (err error) {
	if o.policy == stdin && o.nodes == stdin {
		return errors.New("the policy and the nodes cannot both come from standard input: give one of them as a file")
	}
	o.env, err = environmentOf(o.assignments)
	return err
}

// checkServer warns if the cluster's version is not supported. It fails if the version cannot be parsed.
func (o renderOptions) checkServer(stderr io.Writer) error {
	if o.server == "" {
		return nil
	}
	sentence, err := version.OutOfRange(o.server)
	if err != nil {
		return fmt.Errorf("--server-version: %w", err)
	}
	if sentence != "" {
		fmt.Fprintln(stderr, "warning:", sentence)
	}
	return nil
}

func (o renderOptions) run(cmd *cobra.Command) error {
	found, err := o.compute(cmd)
	if err != nil {
		return err
	}
	printed, err := documentsOf(found.objects)
	if err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(printed); err != nil {
		return fmt.Errorf("writing the objects: %w", err)
	}
	for _, sentence := range found.notes {
		fmt.Fprintln(cmd.ErrOrStderr(), sentence)
	}
	return found.refused
}
