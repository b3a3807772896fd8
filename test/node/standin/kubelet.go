//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubeletServer is the part of a kubelet that device plugins register with.
type kubeletServer struct {
	api.UnimplementedRegistrationServer
	// plugins are those that have registered, by resource.
	lock    sync.Mutex
	plugins map[string]api.DevicePluginClient
	// dir has the sockets of plugins.
	dir     string
	printed sync.Mutex
}

// event is a line that kubelet prints: what a plugin advertises for a resource, its end, or the answer to an order.
type event struct {
	Resource string
	// Devices are the states of all devices by their IDs; null if it is no advertisement.
	Devices map[string]string `json:",omitempty"`
	// NUMA are the NUMA nodes of devices by their IDs.
	NUMA map[string]int64 `json:",omitempty"`
	// Gone: the plugin has ended its stream.
	Gone bool `json:",omitempty"`
	// Allocated or Error is the answer to an order, Preferred that to one with a size.
	Allocated *api.ContainerAllocateResponse `json:",omitempty"`
	Preferred []string                       `json:",omitempty"`
	Error     string                         `json:",omitempty"`
}

// request is a line that kubelet reads: the devices of one container, or how many of these the plugin is to choose.
type request struct {
	Resource string
	IDs      []string
	Size     int32
}

// kubelet serves the socket of the registration in a folder, until its standard input ends, prints what plugins
// advertise, and allocates devices by order.
func kubelet(args []string) error {
	server := &kubeletServer{plugins: map[string]api.DevicePluginClient{}, dir: args[0]}
	path := filepath.Join(server.dir, filepath.Base(api.KubeletSocket))
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	serving := grpc.NewServer()
	api.RegisterRegistrationServer(serving, server)
	go func() { _ = serving.Serve(listener) }()
	defer serving.Stop()
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var order request
		if err := json.Unmarshal(orders.Bytes(), &order); err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		server.print(server.answer(order))
	}
	return orders.Err()
}

func (s *kubeletServer) print(line event) {
	s.printed.Lock()
	defer s.printed.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line)
}

// answer asks the plugin of a resource.
func (s *kubeletServer) answer(order request) event {
	s.lock.Lock()
	plugin := s.plugins[order.Resource]
	s.lock.Unlock()
	answer := event{Resource: order.Resource}
	switch {
	case plugin == nil:
		answer.Error = "no plugin has registered"
	case order.Size > 0:
		response, err := plugin.GetPreferredAllocation(context.Background(), &api.PreferredAllocationRequest{
			ContainerRequests: []*api.ContainerPreferredAllocationRequest{
				{AvailableDeviceIDs: order.IDs, AllocationSize: order.Size},
			},
		})
		if err != nil {
			answer.Error = err.Error()
			return answer
		}
		answer.Preferred = response.ContainerResponses[0].DeviceIDs
	default:
		response, err := plugin.Allocate(context.Background(), &api.AllocateRequest{
			ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: order.IDs}},
		})
		if err != nil {
			answer.Error = err.Error()
			return answer
		}
		answer.Allocated = response.ContainerResponses[0]
	}
	return answer
}

// Register connects to a plugin, and prints what it advertises.
func (s *kubeletServer) Register(_ context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	if request.Version != api.Version {
		return nil, fmt.Errorf("the version %s is not %s", request.Version, api.Version)
	}
	connection, err := grpc.NewClient("unix://"+filepath.Join(s.dir, request.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	plugin := api.NewDevicePluginClient(connection)
	s.lock.Lock()
	s.plugins[request.ResourceName] = plugin
	s.lock.Unlock()
	go s.watch(request.ResourceName, plugin)
	return &api.Empty{}, nil
}

func (s *kubeletServer) watch(resource string, plugin api.DevicePluginClient) {
	stream, err := plugin.ListAndWatch(context.Background(), &api.Empty{})
	for err == nil {
		var list *api.ListAndWatchResponse
		if list, err = stream.Recv(); err != nil {
			break
		}
		line := event{Resource: resource, Devices: map[string]string{}, NUMA: map[string]int64{}}
		for _, device := range list.Devices {
			line.Devices[device.ID] = device.Health
			for _, node := range device.GetTopology().GetNodes() {
				line.NUMA[device.ID] = node.ID
			}
		}
		s.print(line)
	}
	s.print(event{Resource: resource, Gone: true})
}
