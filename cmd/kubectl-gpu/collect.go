package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// collectOptions are the flags of collect.
type collectOptions struct {
	namespace string
	// logLines bounds each log, maxSize all files together in MiB, and timeout the whole command.
	logLines, maxSize int
	timeout           time.Duration
	connection        connection
}

func collectCommand() *cobra.Command {
	o := collectOptions{}
	command := &cobra.Command{
		Use:   "collect [FILE]",
		Short: "Write a support bundle: objects, events, logs, metrics and versions, without credentials",
		Long: `Write what is needed to find out what is wrong with the GPUs of a cluster into one .tar.gz: the policy and the
NVIDIADrivers, the nodes with GPUs, the objects, pods, events and logs of the operator's namespace, which pods request
GPUs, the metrics of exporters, versions, and what status and explain print. FILE is - for standard output; the default
is a file in the current folder. A file that exists is not replaced.

Credentials are left out. Secrets are never read. Of ConfigMaps that the operator has not written, and of annotations of
other domains, only the keys are kept. Variables, arguments and keys with names such as PASSWORD or TOKEN lose their
value, URLs their user, and texts what has the form of a credential: keys, tokens, authorization headers. What was found
so is then removed from all other files, such as logs. A credential in a log that has neither a name nor a known form
remains: look through the logs if your programs print such. Names of nodes, pods and images are kept.

The logs are those of at most 500 pods. What there are limits for is read of pods and nodes that are not ready first.

summary.txt is the place to begin. index.json lists all files, what was redacted, and what could not be read: a part
that fails does not stop the others.

It reads what you may read: with the rights of the ClusterRole view, and of listing Nodes, ClusterPolicies and
NVIDIADrivers, most parts succeed.

Exit codes: 0 the bundle is written, also if parts of it could not be read, 1 failure, 2 wrong usage.`,
		Example: `  kubectl gpu collect
  kubectl gpu collect bundle.tar.gz --log-lines 10000 --timeout 10m
  kubectl gpu collect - | ssh support "cat > bundle.tar.gz"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.logLines < 0 || o.maxSize < 1 || o.timeout <= 0 {
				return errors.New("--log-lines must not be negative, --max-size and --timeout must be positive")
			}
			now := time.Now().UTC()
			name := "gpu-operator-bundle-" + now.Format("20060102T150405Z")
			file := name + ".tar.gz"
			if len(args) > 0 {
				file = args[0]
			}
			if err := o.run(cmd, name, file, now); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", operatorNamespaceUsage)
	flags.IntVar(&o.logLines, "log-lines", 2000, "last lines of each log, of at most 1 MiB; 0 for no logs")
	flags.IntVar(&o.maxSize, "max-size", 128, "size of all files before compression, in MiB: what is beyond is left out, "+
		"logs first")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "what has not been read by then is left out")
	o.connection.addFlags(flags)
	completeFlag(command, "namespace", completing(&o.connection, namespaceNames))
	return command
}

func (o collectOptions) run(cmd *cobra.Command, name, file string, now time.Time) error {
	if _, err := os.Lstat(file); err == nil && file != stdin {
		return fmt.Errorf("creating the bundle: %s exists, and is not replaced: give another FILE", file)
	}
	collected, err := o.collect(cmd.Context(), now)
	if err != nil {
		return err
	}
	if file == stdin {
		err = collected.write(cmd.OutOrStdout(), name)
		collected.report(cmd.ErrOrStderr(), cmd.ErrOrStderr(), file)
		return err
	}
	if err := collected.save(file, name); err != nil {
		return err
	}
	collected.report(cmd.OutOrStdout(), cmd.ErrOrStderr(), file)
	return nil
}

// save writes the bundle to a new file. It is created only now, so that an interrupted command leaves none.
func (b *bundle) save(file, name string) error {
	// Only the user reads it, as the cluster's names are in it.
	created, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("creating the bundle: %w", err)
	}
	if err := errors.Join(b.write(created, name), created.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// collect reads everything, as far as time and size allow.
func (o collectOptions) collect(ctx context.Context, now time.Time) (*bundle, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	asked, err := o.connection.open()
	if err != nil {
		return nil, err
	}
	c := &collector{
		collectOptions: o, session: asked, bundle: newBundle(now, int64(o.maxSize)<<20), namespace: o.namespace,
	}
	// An API server that does not answer at all is a failure.
	if err := c.versions(ctx); err != nil {
		return nil, err
	}
	c.objects(ctx)
	c.overview(ctx)
	c.metrics(ctx)
	c.logs(ctx)
	return c.bundle, nil
}

// report prints where the bundle is, and what it lacks.
func (b *bundle) report(out, errOut io.Writer, file string) {
	redacted := 0
	for _, count := range b.redactor.Count {
		redacted += count
	}
	fmt.Fprintf(out, "%s: %s, %s redacted.\n", file, count(len(b.index.Files), "file"), count(redacted, "value"))
	if len(b.index.Missing) > 0 {
		fmt.Fprintf(errOut, "kubectl gpu: %s could not be read; index.json has the reasons\n",
			count(len(b.index.Missing), "part"))
	}
}
