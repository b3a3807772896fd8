//go:build linux

package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// The ways in which a container gets its devices, as DEVICE_LIST_STRATEGY lists them.
const (
	byVariable    = "envvar"
	byMounts      = "volume-mounts"
	byAnnotations = "cdi-annotations"
	byCDI         = "cdi-cri"
)

const (
	devicesVariable = "NVIDIA_VISIBLE_DEVICES"
	// devicesDir is where a container has a mount for each device, if it gets its devices by mounts.
	devicesDir = "/var/run/nvidia-container-devices"
	// annotationPrefix begins the annotation for the runtime; what follows differs for each container.
	annotationPrefix = "cdi.k8s.io/nvidia-device-plugin_"
)

// allocate returns what a container gets for devices with these IDs.
func (s *pluginServer) allocate(ids []string) *api.ContainerAllocateResponse {
	var given []string
	for _, id := range ids {
		if unit, _, _ := strings.Cut(id, replicaSign); !slices.Contains(given, unit) {
			given = append(given, unit)
		}
	}
	answer := &api.ContainerAllocateResponse{Envs: map[string]string{
		"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled",
	}}
	if s.sharing.strategy == sharingMPS {
		addMPS(answer, s.sharing.advertised(s.resource))
	}
	ways := strings.Split(cmp.Or(os.Getenv("DEVICE_LIST_STRATEGY"), byVariable), ",")
	s.addCDI(answer, ways, given)
	if slices.Contains(ways, byVariable) {
		answer.Envs[devicesVariable] = strings.Join(given, ",")
	}
	if slices.Contains(ways, byMounts) {
		answer.Envs[devicesVariable] = devicesDir
		for _, unit := range given {
			answer.Mounts = append(answer.Mounts,
				&api.Mount{HostPath: os.DevNull, ContainerPath: filepath.Join(devicesDir, unit)})
		}
	}
	if answer.Envs[devicesVariable] != "" && os.Getenv("PASS_DEVICE_SPECS") == "true" {
		answer.Devices = s.nodes(given)
	}
	return answer
}

// addCDI names the devices for the runtime, in the ways that are for it.
func (s *pluginServer) addCDI(answer *api.ContainerAllocateResponse, ways, given []string) {
	var names []string
	for _, unit := range given {
		names = append(names, cdiKind+"="+unit)
	}
	if slices.Contains(ways, byAnnotations) {
		var id [16]byte
		_, _ = rand.Read(id[:]) // It never fails.
		key := fmt.Sprintf("%s%x-%x-%x-%x-%x", annotationPrefix, id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		answer.Annotations = map[string]string{key: strings.Join(names, ",")}
	}
	if slices.Contains(ways, byCDI) {
		for _, name := range names {
			answer.CdiDevices = append(answer.CdiDevices, &api.CDIDevice{Name: name})
		}
	}
}

// nodes returns the device nodes of units, and those of the driver that exist.
func (s *pluginServer) nodes(given []string) []*api.DeviceSpec {
	var paths []string
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"} {
		if _, err := os.Stat("/dev/" + name); err == nil {
			paths = append(paths, "/dev/"+name)
		}
	}
	for _, unit := range s.units {
		if slices.Contains(given, unit.id) {
			paths = append(paths, "/dev/nvidia"+strconv.Itoa(unit.gpu))
		}
	}
	var nodes []*api.DeviceSpec
	for _, path := range paths {
		host := filepath.Join(os.Getenv("NVIDIA_DEV_ROOT"), path)
		nodes = append(nodes, &api.DeviceSpec{ContainerPath: path, HostPath: host, Permissions: "rw"})
	}
	return nodes
}

// addMPS gives a container the pipes and the memory of the Multi-Process Service.
func addMPS(answer *api.ContainerAllocateResponse, resource string) {
	pipes, onHost := filepath.Join(mpsDir(mpsRoot, resource), "pipe"), os.Getenv("MPS_ROOT")
	answer.Envs[pipeVariable] = pipes
	answer.Mounts = []*api.Mount{
		{ContainerPath: pipes, HostPath: filepath.Join(mpsDir(onHost, resource), "pipe")},
		{ContainerPath: sharedMemory, HostPath: filepath.Join(onHost, filepath.Base(mpsShared))},
	}
}
