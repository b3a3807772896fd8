package dra

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	// Program is the driver's plugin of the kubelet, which has no other part for GPUs.
	Program = "gpu-kubelet-plugin"
	// Driver is its name in ResourceSlices and claims.
	Driver = "gpu.nvidia.com"
	// Namespace has its ServiceAccount and its DaemonSet, which have the same name.
	Namespace, Name = "dra-driver", "dra-driver-nvidia-gpu-kubelet-plugin"
	// Image is that of the DaemonSet.
	Image = "example.com/dra-driver-nvidia-gpu:v0.4.1"
)

//go:embed driver.yaml
var manifest []byte

// DriverRoot is where a container has the GPU driver that it installs on its node.
const DriverRoot = "/run/nvidia/driver"

// Objects returns the objects in the order of installation, the DaemonSet last, for nodes that have the GPU driver at
// root: DriverRoot, or "/" if their own system has it.
func Objects(root string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	rooted := bytes.ReplaceAll(manifest, []byte(DriverRoot), []byte(root))
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rooted), len(rooted))
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifest of the DRA driver: %w", err)
		}
		objects = append(objects, object)
	}
}

// Describe returns the attributes and the capacities of a device by their names, as text.
func Describe(device *resourcev1.Device) map[string]string {
	described := map[string]string{}
	for name, attribute := range device.Attributes {
		switch {
		case attribute.StringValue != nil:
			described[string(name)] = *attribute.StringValue
		case attribute.VersionValue != nil:
			described[string(name)] = "v" + *attribute.VersionValue
		case attribute.IntValue != nil:
			described[string(name)] = fmt.Sprint(*attribute.IntValue)
		default:
			described[string(name)] = "of another type"
		}
	}
	for name, capacity := range device.Capacity {
		described["capacity/"+string(name)] = capacity.Value.String()
	}
	for _, taint := range device.Taints {
		described["taint/"+taint.Key] = taint.Value + ":" + string(taint.Effect)
	}
	return described
}
