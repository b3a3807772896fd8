//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resourcePrefix = "nvidia.com/"
	gpuResource    = resourcePrefix + "gpu"
	migPrefix      = resourcePrefix + "mig-"
	cdiKind        = "k8s.device-plugin.nvidia.com/gpu"
	cdiFile        = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
	// replicaSign separates the name of a GPU from the number of its replica.
	replicaSign = "::"
)

// pluginServer is the device plugin of one resource between two configurations.
type pluginServer struct {
	api.UnimplementedDevicePluginServer
	resource string
	sharing  sharing
	units    []unit
	devices  []*api.Device
	// ended is closed with the server.
	ended chan struct{}
}

// plugin is the device plugin: it serves the GPUs of the driver's root to the kubelet, each with the replicas of its
// configuration. A new kubelet, or SIGHUP for a new configuration, makes it start again. While the daemon of the
// Multi-Process Service that is to share the GPUs does not serve, it serves nothing, and tries again.
func plugin([]string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(api.DevicePluginPath); err != nil {
		return fmt.Errorf("watch the kubelet's socket: %w", err)
	}
	for {
		stop, err := servePlugin()
		var retry <-chan time.Time
		var waiting notReady
		switch {
		case errors.As(err, &waiting):
			fmt.Printf("the plugin does not start, trying again in %s: %v\n", mpsRetry, err)
			retry = time.After(mpsRetry)
		case err != nil:
			return err
		}
		again, err := awaitReason(signals, watcher, retry)
		stop()
		if err != nil || !again {
			return err
		}
	}
}

// awaitReason waits for a reason to start again, or to end.
func awaitReason(
	signals <-chan os.Signal, watcher *fsnotify.Watcher, retry <-chan time.Time,
) (again bool, err error) {
	for {
		select {
		case <-retry:
			return true, nil
		case received := <-signals:
			return received == syscall.SIGHUP, nil
		case event := <-watcher.Events:
			if event.Name == api.KubeletSocket && event.Has(fsnotify.Create) {
				return true, nil
			}
		case err := <-watcher.Errors:
			return false, err
		}
	}
}

func servePlugin() (stop func(), err error) {
	devRoot := os.Getenv("DEV_ROOT_CTR_PATH")
	gpus, err := gpusIn(filepath.Join(devRoot, "dev"))
	if err != nil || len(gpus) == 0 {
		return nil, fmt.Errorf("find GPUs below %q: %w", devRoot, errors.Join(err, fs.ErrNotExist))
	}
	resources, _, err := resourcesOf(gpus, os.Getenv("MIG_STRATEGY"))
	if err != nil {
		return nil, err
	}
	if err := writeCDI(resources); err != nil {
		return nil, fmt.Errorf("describe the GPUs to the runtime: %w", err)
	}
	shared, err := readSharing()
	if err != nil {
		return nil, err
	}
	var servers []func()
	stop = func() {
		for _, end := range servers {
			end()
		}
	}
	for _, resource := range resources {
		if shared.strategy == sharingMPS {
			if err := checkDaemon(shared.advertised(resource.name)); err != nil {
				return stop, notReady{err}
			}
		}
		end, err := serve(resource, shared)
		if err != nil {
			stop()
			return nil, err
		}
		servers = append(servers, end)
	}
	return stop, nil
}

// notReady is the error for a daemon of the Multi-Process Service that does not serve yet.
type notReady struct{ error }

// serve serves a resource to the kubelet.
func serve(of resource, shared sharing) (stop func(), err error) {
	server := &pluginServer{resource: of.name, sharing: shared, units: of.units, ended: make(chan struct{})}
	server.devices = offered(of.units, shared.of(of.name))
	advertised := shared.advertised(of.name)
	name := "nvidia-" + strings.TrimPrefix(advertised, resourcePrefix) + ".sock"
	socket := filepath.Join(api.DevicePluginPath, name)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	serving := grpc.NewServer()
	api.RegisterDevicePluginServer(serving, server)
	go func() { _ = serving.Serve(listener) }()
	stop = sync.OnceFunc(func() { close(server.ended); serving.Stop() })
	if err := register(advertised, name); err != nil {
		stop()
		return nil, fmt.Errorf("register with the kubelet: %w", err)
	}
	return stop, nil
}

// offered returns the devices that are advertised to the kubelet, each with its replicas.
func offered(units []unit, replicas int) []*api.Device {
	var devices []*api.Device
	for _, unit := range units {
		for replica := range replicas {
			id := unit.id
			if replicas > 1 {
				id += replicaSign + strconv.Itoa(replica)
			}
			devices = append(devices, &api.Device{ID: id, Health: api.Healthy})
		}
	}
	return devices
}

func register(resource, socket string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	_, err = api.NewRegistrationClient(connection).Register(context.Background(), &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: resource, Options: &api.DevicePluginOptions{},
	})
	return err
}

func (*pluginServer) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices to the kubelet. Until then the kubelet rejects each pod that wants one.
func (s *pluginServer) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: s.devices}); err != nil {
		return err
	}
	fmt.Printf("the plugin serves %d devices of %s\n", len(s.devices), s.resource)
	select {
	case <-s.ended:
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate makes the runtime inject the GPUs of the devices, and what their clients need of the Multi-Process Service.
func (s *pluginServer) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		if count := len(container.DevicesIds); s.sharing.failAbove && s.sharing.of(s.resource) > 1 && count > 1 {
			return nil, fmt.Errorf("invalid allocation request for %q: invalid request: maximum request size for shared "+
				"resources is 1; found %d", s.sharing.advertised(s.resource), count)
		}
		response.ContainerResponses = append(response.ContainerResponses, s.allocate(container.DevicesIds))
	}
	return response, nil
}

// writeCDI describes the GPUs in the format of the Container Device Interface.
func writeCDI(resources []resource) error {
	driverOnHost, devOnHost := os.Getenv("NVIDIA_DRIVER_ROOT"), os.Getenv("NVIDIA_DEV_ROOT")
	node := func(name string) map[string]any {
		return map[string]any{"path": "/dev/" + name, "hostPath": filepath.Join(devOnHost, "dev", name)}
	}
	var devices []any
	for _, resource := range resources {
		for _, unit := range resource.units {
			devices = append(devices, map[string]any{
				"name":           unit.id,
				"containerEdits": map[string]any{"deviceNodes": []any{node("nvidia" + strconv.Itoa(unit.gpu))}},
			})
		}
	}
	content, err := json.Marshal(map[string]any{
		"cdiVersion": "0.5.0", "kind": cdiKind, "devices": devices,
		"containerEdits": map[string]any{
			"env":         []string{"NVIDIA_VISIBLE_DEVICES=void"},
			"deviceNodes": []any{node("nvidiactl"), node("nvidia-uvm")},
			"mounts": []any{map[string]any{
				"hostPath": filepath.Join(driverOnHost, "usr/bin/nvidia-smi"), "containerPath": "/usr/bin/nvidia-smi",
				"options": []string{"ro", "nosuid", "nodev", "bind"},
			}},
		},
	})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(cdiFile+".new", content, 0o644), os.Rename(cdiFile+".new", cdiFile))
}
