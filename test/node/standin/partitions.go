//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	layoutLabel      = "nvidia.com/mig.config"
	layoutStateLabel = "nvidia.com/mig.config.state"
	deployPausedMIG  = "paused-for-mig-change"
	// layoutFile is where the kernel's driver has the MIG layout of each GPU, until it is unloaded.
	layoutFile = "/proc/driver/nvidia/mig-layout"
	// The strategies by which MIG devices are advertised; the third is mixed.
	strategyNone   = "none"
	strategySingle = "single"
	// pciID is the ID of the machine's GPUs in layouts.
	pciID = "0x233010DE"
)

// gpuClients are the operands that use GPUs while they run, with the app label of their pods.
var gpuClients = [][2]string{
	{"device-plugin", "nvidia-device-plugin-daemonset"},
	{"gpu-feature-discovery", "gpu-feature-discovery"},
	{"dcgm-exporter", "nvidia-dcgm-exporter"},
	{"dcgm", "nvidia-dcgm"},
}

// managePartitions is the MIG manager: it applies the layout in the label of its node to the GPUs, and reports its
// state.
func managePartitions([]string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := inCluster()
	if err != nil {
		return err
	}
	fmt.Println("the MIG manager runs")
	chosen, resumed := "", false
	return eachNode(ctx, client, os.Getenv("NODE_NAME"), func(node object) error {
		if name := node.Metadata.Labels[layoutLabel]; name != "" && name != chosen {
			chosen = name
			return partition(ctx, client, node, name, &resumed)
		}
		return nil
	})
}

// labelClients selects or pauses the operands that use GPUs, and a program that is none, also where they have no label.
// Those that a user keeps off the node stay off.
func labelClients(ctx context.Context, client *apiClient, node object, value string) error {
	changes := map[string]string{}
	for _, operand := range append(gpuClients, [2]string{"nvsm"}) {
		key := deployPrefix + operand[0]
		changes[key] = value
		if node.Metadata.Labels[key] == "false" {
			changes[key] = "false"
		}
	}
	return label(ctx, client, node.Metadata.Name, changes)
}

// logLine prints a line as the MIG manager and nvidia-mig-parted do.
func logLine(level, message string) {
	fmt.Printf("time=%q level=%s msg=%q\n", time.Now().UTC().Format(time.RFC3339), level, message)
}

// partition applies a layout to the GPUs. The operands that use them leave the node meanwhile. Until they have come
// back for a first time, they are selected with each outcome.
func partition(ctx context.Context, client *apiClient, of object, name string, resumed *bool) error {
	node := of.Metadata.Name
	logLine("info", "Updating to MIG config: "+name)
	report := func(state string) error {
		if state != "pending" && !*resumed {
			if err := labelClients(ctx, client, of, deployTrue); err != nil {
				return err
			}
		}
		logLine("info", "Changing the '"+layoutStateLabel+"' node label to '"+state+"'")
		return label(ctx, client, node, map[string]string{layoutStateLabel: state})
	}
	wanted, err := layoutNamed(name)
	if err != nil {
		logLine("fatal", "Error selecting MIG config: "+err.Error())
		return report("failed")
	}
	if current, err := layout(); err != nil || maps.Equal(current, wanted) {
		return cmp.Or(err, report("success"))
	}
	namespace := os.Getenv("POD_NAMESPACE")
	err = errors.Join(report("pending"), labelClients(ctx, client, of, deployPausedMIG))
	if err != nil {
		return err
	}
	if err := awaitLeft(ctx, client, namespace, node, gpuClients); err != nil {
		return err
	}
	content, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	if err := write(layoutFile, string(content)); err != nil {
		return fmt.Errorf("cut the GPUs: %w", err)
	}
	if err := deleteValidators(ctx, client, namespace, node); err != nil {
		return err
	}
	*resumed = true
	return errors.Join(labelClients(ctx, client, of, deployTrue), report("success"))
}

// deleteValidators deletes the pods that have validated other devices.
func deleteValidators(ctx context.Context, client *apiClient, namespace, node string) error {
	validators, err := podsOf(ctx, client, namespace, node, "nvidia-operator-validator")
	if err != nil {
		return err
	}
	for _, pod := range validators {
		path := "/api/v1/namespaces/" + namespace + "/pods/" + pod.Metadata.Name
		if err := client.call(ctx, http.MethodDelete, path, nil, &object{}); err != nil {
			return err
		}
	}
	return nil
}

// layoutNamed returns how many devices of each profile a layout makes of each GPU of the machine.
func layoutNamed(name string) (map[string]int, error) {
	path := cmp.Or(os.Getenv("CONFIG_FILE"), os.Getenv("DEFAULT_CONFIG_FILE"))
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the layouts: %w", err)
	}
	var file struct {
		Layouts map[string][]struct {
			Filter  []string       `json:"device-filter"`
			Devices any            `json:"devices"`
			Profile map[string]int `json:"mig-devices"`
		} `json:"mig-configs"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read the layouts of %s: %w", path, err)
	}
	for _, part := range file.Layouts[name] {
		if len(part.Filter) > 0 && !slices.Contains(part.Filter, pciID) {
			continue
		}
		if part.Devices != "all" {
			return nil, fmt.Errorf("the layout %s is of some GPUs; those of all are played", name)
		}
		return part.Profile, nil
	}
	return nil, fmt.Errorf("selected mig-config not present: %s", name)
}

// layout returns how each GPU is partitioned; empty if none is.
func layout() (map[string]int, error) {
	content, err := os.ReadFile(layoutFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how the GPUs are cut: %w", err)
	}
	var found map[string]int
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("read how the GPUs are cut: %w", err)
	}
	return found, nil
}

// unit is what a pod gets: a GPU, or a MIG device of it.
type unit struct {
	id  string
	gpu int
}

// resource is what the kubelet gives to pods under one name.
type resource struct {
	name  string
	units []unit
	// partitioned: these are whole GPUs in spite of their MIG devices.
	partitioned bool
}

// resourcesOf returns what the device plugin advertises, and the profile of MIG devices that it advertises as GPUs.
// With the strategy none MIG GPUs are advertised as whole ones, with single as GPUs of one profile, with mixed by
// profile.
func resourcesOf(gpus []int, strategy string) (resources []resource, profile string, err error) {
	cut, err := layout()
	if err != nil {
		return nil, "", err
	}
	if len(cut) == 0 || strategy == "" || strategy == strategyNone {
		whole := resource{name: gpuResource, partitioned: len(cut) > 0}
		for _, gpu := range gpus {
			whole.units = append(whole.units, unit{gpuUUID(gpu), gpu})
		}
		return []resource{whole}, "", nil
	}
	single := strategy == strategySingle
	if single && len(cut) > 1 {
		return nil, "", errors.New("more than one MIG device type present on node")
	}
	for number, name := range slices.Sorted(maps.Keys(cut)) {
		devices := resource{name: migPrefix + name}
		if single {
			devices.name, profile = gpuResource, name
		}
		for _, gpu := range gpus {
			for i := range cut[name] {
				devices.units = append(devices.units, unit{migUUID(number, i, gpu), gpu})
			}
		}
		resources = append(resources, devices)
	}
	return resources, profile, nil
}

// migUUID returns the UUID of a MIG device: the number of its profile, its number among those of a GPU, and the GPU.
func migUUID(profile, device, gpu int) string {
	return fmt.Sprintf("MIG-%08d-%04d-4000-8000-%012d", device, profile, gpu)
}
