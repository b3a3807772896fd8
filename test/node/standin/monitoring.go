//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// featureFile is where GPU Feature Discovery writes its labels.
	featureFile = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
	// product is the label of the machine's GPUs.
	product = "NVIDIA-H100-80GB-HBM3"
)

// discoverFeatures is GPU Feature Discovery, which writes a file, again on SIGHUP for a new configuration, and removes
// it when it ends.
func discoverFeatures([]string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for again := true; again; {
		if err := writeFeatures(); err != nil {
			return err
		}
		fmt.Println("the labels are written")
		again = <-signals == syscall.SIGHUP
	}
	return os.Remove(featureFile)
}

func writeFeatures() error {
	gpus, err := gpusIn("/dev")
	if err != nil || len(gpus) == 0 {
		return fmt.Errorf("find GPUs: %w", errors.Join(err, os.ErrNotExist))
	}
	shared, err := readSharing()
	if err != nil {
		return err
	}
	strategy := os.Getenv("MIG_STRATEGY")
	resources, profile, invalid := resourcesOf(gpus, strategy)
	features := map[string]string{
		"gfd.timestamp": strconv.FormatInt(time.Now().Unix(), 10), "cuda.driver-version.full": loadedVersion(),
		"mig.capable": "true", "mps.capable": strconv.FormatBool(shared.strategy == sharingMPS && profile == ""),
		// A GPU that is partitioned is counted, but nothing of it is advertised under this name.
		"gpu.count": strconv.Itoa(len(gpus)), "gpu.product": product, "gpu.replicas": "0",
		"gpu.sharing-strategy": sharingNone,
	}
	if strategy != "" && strategy != strategyNone {
		features["mig.strategy"] = strategy
	}
	if invalid != nil {
		fmt.Println("the layout is invalid:", invalid)
		features["gpu.count"], features["gpu.product"], features["gpu.sharing-strategy"] = "0", product+"-MIG-INVALID", ""
	}
	for _, resource := range resources {
		if resource.partitioned {
			continue
		}
		shown := profile
		if kind, isMIG := strings.CutPrefix(resource.name, migPrefix); isMIG {
			shown = kind
		}
		addFeatures(features, resource, shown, shared)
	}
	var labels strings.Builder
	for _, name := range slices.Sorted(maps.Keys(features)) {
		fmt.Fprintf(&labels, "%s%s=%s\n", resourcePrefix, name, features[name])
	}
	return errors.Join(os.WriteFile(featureFile+".new", []byte(labels.String()), 0o644),
		os.Rename(featureFile+".new", featureFile))
}

// addFeatures adds the labels of a resource. profile is that of its MIG devices, empty for whole GPUs.
func addFeatures(features map[string]string, of resource, profile string, shared sharing) {
	prefix, name := strings.TrimPrefix(of.name, resourcePrefix), product
	if profile != "" {
		name += "-MIG-" + profile
	}
	strategy := sharingNone
	if shared.of(of.name) > 1 {
		strategy = shared.strategy
		if !shared.renamed {
			name += "-SHARED"
		}
	}
	features[prefix+".count"], features[prefix+".product"] = strconv.Itoa(len(of.units)), name
	features[prefix+".replicas"] = strconv.Itoa(shared.of(of.name))
	features[prefix+".sharing-strategy"] = strategy
}

// exportMetrics is the DCGM exporter.
func exportMetrics([]string) error {
	gpus, err := gpusIn("/dev")
	if err != nil || len(gpus) == 0 {
		return fmt.Errorf("find GPUs: %w", errors.Join(err, os.ErrNotExist))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "OK") })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		for _, gpu := range gpus {
			_, _ = fmt.Fprintf(w, "DCGM_FI_DEV_GPU_TEMP{gpu=%q,UUID=%q} 30\n", fmt.Sprint(gpu), gpuUUID(gpu))
		}
	})
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("DCGM_EXPORTER_LISTEN"), ":9400"))
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, mux) }()
	return untilEnd()
}

// serveEngine is the engine of DCGM: it accepts connections.
func serveEngine([]string) error {
	listener, err := net.Listen("tcp", ":5555")
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	return untilEnd()
}
