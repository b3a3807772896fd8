// The program allinone is containerd, its shim for runc or ctr, by the name under which it is started. One program has
// what these share once, so that the bundle of make gpu-bundle is small.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin" // the shim's plugin
	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"                 // containerd's plugins

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	ctr "github.com/containerd/containerd/v2/cmd/ctr/app"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

func main() {
	name := filepath.Base(os.Args[0])
	var err error
	switch name {
	case "containerd":
		keep(func(r *plugin.Registration) bool { return !ofShim(r) })
		err = command.App().Run(os.Args)
	case "ctr":
		err = ctr.New().Run(os.Args)
	case "containerd-shim-runc-v2":
		keep(ofShim)
		shim.Run(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
	default:
		err = errors.New("unknown program; link this one under the name of the program that it is to be")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, err)
		os.Exit(1)
	}
}

// ofShim reports whether a plugin is the shim's. containerd and the shim each start all plugins that are registered.
func ofShim(r *plugin.Registration) bool { return r.Type == plugins.TTRPCPlugin && r.ID == "task" }

// keep removes all plugins but some.
func keep(wanted plugin.DisableFilter) {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for i := range all {
		if wanted(&all[i]) {
			registry.Register(&all[i])
		}
	}
}
