package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// place is the location that a row checks.
type place struct {
	rendered
	row row
	ds  *appsv1.DaemonSet
	// shipped is what the installer creates.
	shipped installer
}

func (p place) spec() *corev1.PodSpec { return &p.ds.Spec.Template.Spec }

// extractors find the value that a row checks. They return nil if there is none, and an error if the row cannot be
// checked.
var extractors = map[string]func(place) (any, error){
	"step":       func(p place) (any, error) { return p.step.Action, nil },
	"daemonSets": func(p place) (any, error) { return len(p.daemonSets), nil },
	"migLayout":  func(p place) (any, error) { return text(p.step.Operand.Layout(p.input)), nil },

	"service":            object(func() manifest.Object { return &corev1.Service{} }),
	"serviceMonitor":     object(func() manifest.Object { return &monitoringv1.ServiceMonitor{} }),
	"runtimeClassObject": object(func() manifest.Object { return &nodev1.RuntimeClass{} }),
	"configMap":          func(p place) (any, error) { return text(p.configMap(p.row.Name)[p.row.Key]), nil },
	"migLayouts":         migLayouts,
	"record":             record,
	"servicePort":        ofDaemonSet(servicePort),

	"name":      ofDaemonSet(func(p place) (any, error) { return p.ds.Name, nil }),
	"namespace": ofDaemonSet(func(p place) (any, error) { return p.ds.Namespace, nil }),
	"label":     ofDaemonSet(func(p place) (any, error) { return text(p.ds.Labels[p.row.Name]), nil }),
	"podLabel": ofDaemonSet(func(p place) (any, error) {
		return text(p.ds.Spec.Template.Labels[p.row.Name]), nil
	}),
	"podAnnotation": ofDaemonSet(func(p place) (any, error) {
		return text(p.ds.Spec.Template.Annotations[p.row.Name]), nil
	}),
	"nodeSelector":                 ofDaemonSet(func(p place) (any, error) { return p.spec().NodeSelector, nil }),
	"selectedBy":                   ofDaemonSet(selectedBy),
	"affinity":                     ofDaemonSet(func(p place) (any, error) { return p.spec().Affinity, nil }),
	"tolerations":                  ofDaemonSet(func(p place) (any, error) { return p.spec().Tolerations, nil }),
	"priorityClass":                ofDaemonSet(func(p place) (any, error) { return p.spec().PriorityClassName, nil }),
	"runtimeClass":                 ofDaemonSet(func(p place) (any, error) { return p.spec().RuntimeClassName, nil }),
	"podSecurityContext":           ofDaemonSet(func(p place) (any, error) { return p.spec().SecurityContext, nil }),
	"hostPID":                      ofDaemonSet(func(p place) (any, error) { return p.spec().HostPID, nil }),
	"hostIPC":                      ofDaemonSet(func(p place) (any, error) { return p.spec().HostIPC, nil }),
	"hostNetwork":                  ofDaemonSet(func(p place) (any, error) { return p.spec().HostNetwork, nil }),
	"dnsPolicy":                    ofDaemonSet(func(p place) (any, error) { return p.spec().DNSPolicy, nil }),
	"shareProcessNamespace":        ofDaemonSet(func(p place) (any, error) { return p.spec().ShareProcessNamespace, nil }),
	"updateStrategy":               ofDaemonSet(updateStrategy),
	"pullSecrets":                  ofDaemonSet(pullSecrets),
	"initContainers":               ofDaemonSet(func(p place) (any, error) { return names(p.spec().InitContainers), nil }),
	"containers":                   ofDaemonSet(func(p place) (any, error) { return names(p.spec().Containers), nil }),
	"wait":                         ofDaemonSet(waits),
	"serviceAccount":               ofDaemonSet(serviceAccount),
	"automountServiceAccountToken": ofDaemonSet(automount),
	"rbac": ofDaemonSet(func(p place) (any, error) {
		return p.shipped.verbs(p.spec().ServiceAccountName, p.row.Name), nil
	}),

	"image":           ofContainer(func(_ place, c *corev1.Container) (any, error) { return c.Image, nil }),
	"imagePullPolicy": ofContainer(func(_ place, c *corev1.Container) (any, error) { return c.ImagePullPolicy, nil }),
	"securityContext": ofContainer(func(_ place, c *corev1.Container) (any, error) { return c.SecurityContext, nil }),
	"resources":       ofContainer(func(_ place, c *corev1.Container) (any, error) { return c.Resources, nil }),
	"startupProbe": ofContainer(func(_ place, c *corev1.Container) (any, error) {
		return probe(c, c.StartupProbe), nil
	}),
	"livenessProbe": ofContainer(func(_ place, c *corev1.Container) (any, error) {
		return probe(c, c.LivenessProbe), nil
	}),
	"readinessProbe": ofContainer(func(_ place, c *corev1.Container) (any, error) {
		return probe(c, c.ReadinessProbe), nil
	}),
	"args":  ofContainer(func(_ place, c *corev1.Container) (any, error) { return c.Args, nil }),
	"words": ofContainer(func(_ place, c *corev1.Container) (any, error) { return words(c), nil }),
	"text": ofContainer(func(_ place, c *corev1.Container) (any, error) {
		return strings.Join(words(c), " "), nil
	}),
	"runs":        ofContainer(runs),
	"gpuNode":     ofContainer(gpuNode),
	"exec":        ofContainer(exec),
	"preStop":     ofContainer(preStop),
	"probeText":   ofContainer(probeText),
	"port":        ofContainer(port),
	"metricsPort": ofContainer(metricsPort),
	"env":         ofContainer(func(p place, c *corev1.Container) (any, error) { return env(c, p.row.Name), nil }),
	"envFrom":     ofContainer(envFrom),
	"mount":       ofContainer(mount),
	"mountsOf":    ofContainer(mountsOf),
	"sees": ofContainer(func(p place, c *corev1.Container) (any, error) {
		return sees(p.spec(), c, p.row.Name), nil
	}),
	"hostPathOfEnv": ofContainer(hostPathOfEnv),
	"file": ofContainer(func(p place, c *corev1.Container) (any, error) {
		return file(p.spec(), c, p.row.Name), nil
	}),
}

func ofDaemonSet(extract func(place) (any, error)) func(place) (any, error) {
	return func(p place) (any, error) {
		if p.ds == nil {
			return nil, fmt.Errorf("the operand has no DaemonSet: its step is %s %s %s", p.step.Action, p.step.Reason,
				p.step.Message)
		}
		return extract(p)
	}
}

func ofContainer(extract func(place, *corev1.Container) (any, error)) func(place) (any, error) {
	return ofDaemonSet(func(p place) (any, error) {
		if p.row.Container == "*" {
			return extract(p, &p.spec().Containers[0])
		}
		for _, list := range [][]corev1.Container{p.spec().InitContainers, p.spec().Containers} {
			for i := range list {
				if list[i].Name == p.row.Container {
					return extract(p, &list[i])
				}
			}
		}
		return nil, fmt.Errorf("there is no container %q among %v and %v",
			p.row.Container, names(p.spec().InitContainers), names(p.spec().Containers))
	})
}

// object returns the object of that kind and name.
func object(kind func() manifest.Object) func(place) (any, error) {
	return func(p place) (any, error) {
		if p.step.Action == "Hold" {
			return nil, fmt.Errorf("the operand is held: %s", p.step.Message)
		}
		for _, object := range p.objects {
			if fmt.Sprintf("%T", object) == fmt.Sprintf("%T", kind()) && object.GetName() == p.row.Name {
				return object, nil
			}
		}
		return nil, nil
	}
}

func text(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func names(containers []corev1.Container) []string {
	all := make([]string, 0, len(containers))
	for i := range containers {
		all = append(all, containers[i].Name)
	}
	return all
}

func updateStrategy(p place) (any, error) {
	strategy := p.ds.Spec.UpdateStrategy
	found := map[string]any{"type": strategy.Type}
	if strategy.RollingUpdate != nil {
		found["maxUnavailable"] = strategy.RollingUpdate.MaxUnavailable
	}
	return found, nil
}

func pullSecrets(p place) (any, error) {
	var all []string
	for _, secret := range p.spec().ImagePullSecrets {
		all = append(all, secret.Name)
	}
	return all, nil
}

// waits returns the markers that the first init container waits for, sorted.
func waits(p place) (any, error) {
	for i := range p.spec().InitContainers {
		c := &p.spec().InitContainers[i]
		if c.Name != labels.WaitContainer {
			continue
		}
		if i > 0 {
			return nil, errors.New("another container is before the wait")
		}
		for _, arg := range c.Args {
			if list, found := strings.CutPrefix(arg, labels.WaitForFlag); found {
				markers := strings.Split(list, ",")
				slices.Sort(markers)
				return markers, nil
			}
		}
		return nil, fmt.Errorf("the wait names no markers: %v", c.Args)
	}
	return nil, nil
}

func (r rendered) configMap(name string) map[string]string {
	for _, object := range r.objects {
		if cm, isConfigMap := object.(*corev1.ConfigMap); isConfigMap && cm.Name == name {
			return cm.Data
		}
	}
	return nil
}

// migLayouts returns the names of the layouts in the configuration of mig-parted.
func migLayouts(p place) (any, error) {
	var config struct {
		Layouts map[string]any `json:"mig-configs"`
	}
	if err := yaml.Unmarshal([]byte(p.configMap(p.row.Name)["config.yaml"]), &config); err != nil {
		return nil, err
	}
	var all []string
	for name := range config.Layouts {
		all = append(all, name)
	}
	return all, nil
}

// record returns the expression of a recording rule.
func record(p place) (any, error) {
	for _, object := range p.objects {
		rules, isRule := object.(*monitoringv1.PrometheusRule)
		if !isRule {
			continue
		}
		for _, group := range rules.Spec.Groups {
			for _, rule := range group.Rules {
				if rule.Record == p.row.Name {
					return rule.Expr.String(), nil
				}
			}
		}
	}
	return nil, nil
}

// servicePort resolves SERVICE/PORT to the container port that serves it.
func servicePort(p place) (any, error) {
	name, number, _ := strings.Cut(p.row.Name, "/")
	for _, object := range p.objects {
		service, isService := object.(*corev1.Service)
		if !isService || service.Name != name {
			continue
		}
		for _, port := range service.Spec.Ports {
			if fmt.Sprint(port.Port) == number {
				return containerPort(p.spec(), port), nil
			}
		}
	}
	return nil, fmt.Errorf("no Service %s has the port %s", name, number)
}

func containerPort(pod *corev1.PodSpec, service corev1.ServicePort) any {
	target := service.TargetPort.String()
	if target == "" || target == "0" {
		target = fmt.Sprint(service.Port)
	}
	for i := range pod.Containers {
		for _, port := range pod.Containers[i].Ports {
			if target == port.Name || target == fmt.Sprint(port.ContainerPort) {
				return port.ContainerPort
			}
		}
	}
	return nil
}

// selectedBy returns the labels by which the first node affinity term selects a node that has all labels of the
// operator.
func selectedBy(p place) (any, error) {
	affinity := p.spec().Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil, fmt.Errorf("DaemonSet %s has no node affinity", p.ds.Name)
	}
	labels := map[string]string{}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for _, e := range required.NodeSelectorTerms[0].MatchExpressions {
		if e.Operator == corev1.NodeSelectorOpIn {
			labels[e.Key] = e.Values[0]
		}
	}
	return labels, nil
}
