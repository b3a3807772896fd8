// The program allinone is kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or etcd, by the name under
// which it is started. One program has what these share once, so that the bundle of make gpu-bundle is small.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // for the time zones of CronJobs

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for logs in JSON
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // for the metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // for the metric of the version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "unknown program %q; link this one under the name of the program that it is to be\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
