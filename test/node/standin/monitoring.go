//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// featureFile is where GPU Feature Discovery writes its labels.
const featureFile = "/etc/kubernetes/node-feature-discovery/features.d/gfd"

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
	replicas, err := replicas()
	if err != nil {
		return err
	}
	units, profile, err := unitsOf(gpus, os.Getenv("MIG_STRATEGY"))
	if err != nil {
		return err
	}
	product, sharing := "NVIDIA-H100-80GB-HBM3", "none"
	if profile != "" {
		product += "-MIG-" + profile
	}
	if replicas > 1 {
		product, sharing = product+"-SHARED", "time-slicing"
	}
	labels := fmt.Sprintf("nvidia.com/gfd.timestamp=%d\nnvidia.com/gpu.count=%d\nnvidia.com/gpu.product=%s\n"+
		"nvidia.com/gpu.replicas=%d\nnvidia.com/gpu.sharing-strategy=%s\n"+
		"nvidia.com/mig.capable=true\nnvidia.com/mps.capable=false\nnvidia.com/cuda.driver-version.full=%s\n",
		time.Now().Unix(), len(units), product, replicas, sharing, loadedVersion())
	return errors.Join(os.WriteFile(featureFile+".new", []byte(labels), 0o644), os.Rename(featureFile+".new", featureFile))
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
