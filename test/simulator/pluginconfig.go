package simulator

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// configVersion is the only version of the formats of NVIDIA's configuration files.
const configVersion = "v1"

// Variables of NVIDIA's programs.
const (
	variableFile     = "CONFIG_FILE"
	variableSource   = "CONFIG_FILE_SRCDIR"
	variableLabel    = "NODE_LABEL"
	variableDefault  = "DEFAULT_CONFIG"
	variableStrategy = "MIG_STRATEGY"
)

// pluginConfig is the configuration of the device plugin, version v1, which is the default. Keys that it does not know
// are ignored.
type pluginConfig struct {
	Version string `json:"version"`
	Flags   struct {
		MIGStrategy string `json:"migStrategy"`
	} `json:"flags"`
	Sharing struct {
		TimeSlicing *sharedResources `json:"timeSlicing"`
		MPS         *sharedResources `json:"mps"`
	} `json:"sharing"`
}

type sharedResources struct {
	Rename    bool  `json:"renameByDefault"`
	FailAbove *bool `json:"failRequestsGreaterThanOne"`
	Resources []struct {
		Name     string `json:"name"`
		Replicas int64  `json:"replicas"`
	} `json:"resources"`
}

// readPluginConfig reads a configuration as the device plugin does, which ends if it is invalid.
func readPluginConfig(text string) (pluginConfig, error) {
	var config pluginConfig
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return config, fmt.Errorf("unmarshal error: %w", err)
	}
	if config.Version != "" && config.Version != configVersion {
		return config, fmt.Errorf("unknown version: %s", config.Version)
	}
	for _, shared := range []*sharedResources{config.Sharing.TimeSlicing, config.Sharing.MPS} {
		if err := shared.check(); err != nil {
			return config, err
		}
	}
	return config, nil
}

// check returns the error with which the device plugin ends if it cannot read the block.
func (s *sharedResources) check() error {
	if s == nil {
		return nil
	}
	if len(s.Resources) == 0 {
		return errors.New("no resources specified")
	}
	for _, resource := range s.Resources {
		if resource.Name == "" || resource.Replicas < 2 {
			return fmt.Errorf("resource %q: number of replicas must be >= 2", resource.Name)
		}
	}
	return nil
}

// shared returns what is shared, nil for nothing, and by which strategy. The device plugin prefers MPS.
func (c pluginConfig) shared() (shared *sharedResources, strategy string) {
	switch {
	case c.Sharing.MPS != nil:
		return c.Sharing.MPS, sharingMPS
	case c.Sharing.TimeSlicing != nil:
		return c.Sharing.TimeSlicing, sharingTimeSlicing
	default:
		return nil, sharingNone
	}
}

// replicas returns how many pods share a device of the resource, 1 without sharing.
func (c pluginConfig) replicas(resource corev1.ResourceName) int64 {
	shared, _ := c.shared()
	if shared == nil {
		return 1
	}
	for _, r := range shared.Resources {
		if r.Name == string(resource) {
			return r.Replicas
		}
	}
	return 1
}

// advertisedAs returns the name under which a resource is advertised.
func (c pluginConfig) advertisedAs(resource corev1.ResourceName) corev1.ResourceName {
	if shared, _ := c.shared(); shared != nil && shared.Rename && c.replicas(resource) > 1 {
		return resource + ".shared"
	}
	return resource
}

// failsAbove reports whether pods may request only one of a shared resource.
func (c pluginConfig) failsAbove() bool {
	shared, strategy := c.shared()
	if shared == nil || shared.FailAbove == nil {
		return strategy == sharingMPS
	}
	return *shared.FailAbove
}

// configured is what the container config-manager of a pod has chosen from a ConfigMap for the programs of the pod.
type configured struct {
	// source is the ConfigMap, label the key of the Node's label, fallback the key of the ConfigMap without that label.
	source, label, fallback string
	// read identifies when the ConfigMap was read: only for another label and after a restart.
	read string
	// missing is the key that the ConfigMap does not have; empty if it has it. The container then ends.
	missing string
	// config is the last one that was chosen, and invalid why it cannot be used.
	config  pluginConfig
	invalid string
}

// newConfigured returns what is configured for a pod. A pod without one has the configuration that is mounted
// from an annotation of it; nil for none.
func newConfigured(pod *corev1.Pod) *configured {
	i := slices.IndexFunc(pod.Spec.Containers, isConfigManager)
	if i < 0 {
		return configuredByAnnotation(pod)
	}
	container := pod.Spec.Containers[i]
	return &configured{
		source: configMapAt(pod, container, variable(container, variableSource)),
		label:  variable(container, variableLabel), fallback: variable(container, variableDefault),
	}
}

// configuredByAnnotation returns the configuration that the first container of a pod reads from an annotation.
func configuredByAnnotation(pod *corev1.Pod) *configured {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	container := pod.Spec.Containers[0]
	file := variable(container, variableFile)
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name != mount.Name || volume.DownwardAPI == nil {
				continue
			}
			for _, item := range volume.DownwardAPI.Items {
				key, isAnnotation := strings.CutPrefix(item.FieldRef.FieldPath, "metadata.annotations['")
				if isAnnotation && path.Join(mount.MountPath, item.Path) == file {
					found := &configured{}
					found.choose(file, map[string]string{file: pod.Annotations[strings.TrimSuffix(key, "']")]})
					return found
				}
			}
		}
	}
	return nil
}

// isConfigManager reports whether the container chooses the configuration: by gpu-node configure, or by config-manager,
// which pods of NVIDIA's operator run.
func isConfigManager(container corev1.Container) bool {
	argv := slices.Concat(container.Command, container.Args)
	return len(argv) > 0 && path.Base(argv[0]) == configManager ||
		len(argv) > 1 && path.Base(argv[0]) == onNodeProgram && argv[1] == configureCommand
}

// variable returns the value of a container's variable, empty if it is not set.
func variable(container corev1.Container, name string) string {
	for _, v := range container.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// configMapAt returns the name of the ConfigMap that is mounted at a path or above it, empty for none.
func configMapAt(pod *corev1.Pod, container corev1.Container, file string) string {
	for _, mount := range container.VolumeMounts {
		if file != mount.MountPath && !strings.HasPrefix(file, mount.MountPath+"/") {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == mount.Name && volume.ConfigMap != nil {
				return volume.ConfigMap.Name
			}
		}
	}
	return ""
}

// configure runs gpu-node configure of the pods: like the real one it reads the ConfigMap when it starts, and when the
// Node's label changes. It does not notice that a ConfigMap has changed. config-manager of NVIDIA's operator is played
// in the same way, although the real one first chooses the default.
func (n *node) configure(ctx context.Context) error {
	for _, p := range n.pods {
		if p.configured == nil || p.configured.source == "" || p.ending() {
			continue
		}
		label := n.object.Labels[p.configured.label]
		read := label + " " + n.boot + " " + strconv.Itoa(p.restarts())
		if read == p.configured.read {
			continue
		}
		data, err := n.configMap(ctx, p.object.Namespace, p.configured.source)
		if err != nil {
			return err
		}
		p.configured.read = read
		p.configured.choose(label, data)
	}
	return nil
}

// configMap returns the content of a ConfigMap, none if it does not exist.
func (n *node) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	found, err := n.sim.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ConfigMap %s/%s for node %s: %w", namespace, name, n.name, err)
	}
	return found.Data, nil
}

// choose takes the configuration that the label names, or else the default one, or else none. Without the key the
// previous one stays.
func (c *configured) choose(label string, data map[string]string) {
	key := label
	if key == "" {
		key = c.fallback
	}
	text, found := data[key]
	c.missing = ""
	switch {
	case key == "":
		c.config, c.invalid = pluginConfig{}, ""
	case !found:
		c.missing = key
	default:
		var err error
		c.invalid = ""
		if c.config, err = readPluginConfig(text); err != nil {
			c.invalid = err.Error()
		}
	}
}

// restarts returns how often containers of the pod were restarted.
func (p *pod) restarts() int {
	restarts := 0
	for _, c := range slices.Concat(p.inits, p.mains) {
		restarts += int(c.restarts)
	}
	return restarts
}

// config returns the configuration of the pod's program, an empty one without config-manager.
func (p *pod) config() pluginConfig {
	if p.configured == nil {
		return pluginConfig{}
	}
	return p.configured.config
}

// migStrategy returns how the pod's program advertises or labels MIG devices. The variable takes precedence over the
// configuration.
func (p *pod) migStrategy() string {
	for _, strategy := range []string{
		variable(p.mains[0].spec, variableStrategy), p.config().Flags.MIGStrategy,
	} {
		if strategy != "" {
			return strategy
		}
	}
	return strategyNone
}

// configFailure returns why a container of the pod ends with an error, empty if its configuration does not make it.
func (p *pod) configFailure(c *container) string {
	switch {
	case p.configured == nil:
		return ""
	case isConfigManager(c.spec) && p.configured.missing != "":
		return fmt.Sprintf("Error: specified config %s does not exist", p.configured.missing)
	case c == p.mains[0] && p.configured.invalid != "":
		return "unable to load config: unable to finalize config: " + p.configured.invalid
	default:
		return ""
	}
}
