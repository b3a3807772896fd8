// Command gpu-operator is the manager: it watches the ClusterPolicy and the nodes, and makes GPU nodes ready for
// work.
package main

import "github.com/clusterpolicy/gpu-operator/cmd/gpu-operator/app"

func main() { app.Main(app.DefaultTiming()) }
