package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// openSettings lets the chart's values in block operator override fields of the Deployment, with those of
// config/manager as defaults. It adds the template action for each placeholder to snippets.
func openSettings(deployment object, snippets map[string]string) error {
	template := in(deployment, "spec", "template")
	pod := in(template, "spec")
	containers, _ := pod["containers"].([]any)
	if len(containers) != 1 {
		return errors.New("config/manager: the Deployment must have exactly one container: change openSettings to select " +
			"the operator's")
	}
	container, _ := containers[0].(object)
	settings := []struct {
		of  object
		key string
	}{
		{in(deployment, "spec"), "replicas"},
		{pod, "priorityClassName"}, {pod, "nodeSelector"}, {pod, "tolerations"}, {pod, "affinity"},
		{container, "resources"}, {container, "imagePullPolicy"},
	}
	for _, s := range settings {
		if err := open(s.of, s.key, snippets); err != nil {
			return err
		}
	}
	pod["zHELM-PULL-SECRETS"] = ""
	snippets["zHELM-PULL-SECRETS"] = optional(`include "gpu-operator.pullSecrets" $`)
	named(in(template, "metadata", "labels"))
	for _, labels := range []object{in(deployment, "metadata", "labels"), in(template, "metadata", "labels")} {
		openMap(labels, "labels", snippets)
	}
	annotations := in(template, "metadata", "annotations")
	openMap(annotations, "annotations", snippets)
	annotations["zHELM-SCRAPE"] = ""
	snippets["zHELM-SCRAPE"] = optional(`include "gpu-operator.scrape" $`)
	return openContainer(container, snippets)
}

// open lets a value in block operator replace a field.
func open(of object, key string, snippets map[string]string) error {
	token := "zHELM-SETTING-" + key
	fallback, there := of[key]
	if !there {
		of[token] = ""
		snippets[token] = optional(fmt.Sprintf(`include "gpu-operator.given" (list $ %q)`, key))
		return nil
	}
	text, err := json.Marshal(fallback)
	if err != nil {
		return fmt.Errorf("encoding %s of the Deployment: %w", key, err)
	}
	of[key] = token
	snippets[token] = fmt.Sprintf("{{ include \"gpu-operator.setting\" (list $ %q `%s`) }}", key, text)
	return nil
}

// openMap lets a value in block operator add keys, but not replace any.
func openMap(of object, key string, snippets map[string]string) {
	var fixed []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !strings.HasPrefix(name, tokenPrefix) {
			fixed = append(fixed, fmt.Sprintf("%q", name))
		}
	}
	token := fmt.Sprintf(tokenPrefix+"MAP-%s-%d", key, len(snippets))
	of[token] = ""
	snippets[token] = optional(fmt.Sprintf(`include "gpu-operator.added" (list $ %q (list %s))`, key,
		strings.Join(fixed, " ")))
}

// openContainer lets the values set the image, and add arguments and environment variables.
func openContainer(container object, snippets map[string]string) error {
	args, _ := container["args"].([]any)
	env, _ := container["env"].([]any)
	found := false
	var names []string
	for _, element := range env {
		variable, _ := element.(object)
		names = append(names, fmt.Sprintf("%q", variable["name"]))
		if variable["name"] == "OPERATOR_IMAGE" {
			variable["value"], found = "zHELM-IMAGE", true
		}
	}
	if !found {
		return errors.New("config/manager: the operator's container has no variable OPERATOR_IMAGE")
	}
	container["image"] = "zHELM-IMAGE"
	snippets["zHELM-IMAGE"] = `{{ include "gpu-operator.image" $ | quote }}`
	container["args"] = append(args, "zHELM-ARGS")
	snippets["zHELM-ARGS"] = optional(`include "gpu-operator.args" $`)
	container["env"] = append(env, object{"name": "zHELM-ENV"})
	snippets["zHELM-ENV"] = optional(fmt.Sprintf(`include "gpu-operator.env" (list $ (list %s))`,
		strings.Join(names, " ")))
	return nil
}

// optional returns the action for lines that may be absent.
func optional(include string) string {
	return "{{- with " + include + " }}{{ nindent INDENT . }}{{ end }}"
}

// sharedDefaults returns, as named templates, what the pods of the hooks share with the operator's pod.
func sharedDefaults(deployment object) ([]byte, error) {
	pod := in(deployment, "spec", "template", "spec")
	containers, _ := pod["containers"].([]any)
	if len(containers) == 0 {
		return nil, errors.New("config/manager: the Deployment has no container")
	}
	container, _ := containers[0].(object)
	text := fmt.Sprintf(header, "config/manager")
	for _, shared := range []struct {
		name  string
		value any
	}{
		{"nodeSelector", pod["nodeSelector"]}, {"tolerations", pod["tolerations"]},
		{"podSecurityContext", pod["securityContext"]},
		{"resources", container["resources"]}, {"containerSecurityContext", container["securityContext"]},
		{"terminationMessagePolicy", container["terminationMessagePolicy"]},
	} {
		encoded, err := json.Marshal(shared.value)
		if err != nil {
			return nil, fmt.Errorf("encoding %s of the Deployment: %w", shared.name, err)
		}
		text += fmt.Sprintf("{{- define \"gpu-operator.default.%s\" -}}\n%s\n{{- end }}\n", shared.name, encoded)
	}
	return []byte(text), nil
}

// setDeployment sets the documented defaults from the operator's Deployment.
func (v *values) setDeployment(objects []object) error {
	for _, o := range objects {
		if fileOf(o) != fileDeployment {
			continue
		}
		pod := in(o, "spec", "template", "spec")
		containers, _ := pod["containers"].([]any)
		if len(containers) == 0 {
			return errors.New("config/manager: the Deployment has no container")
		}
		container, _ := containers[0].(object)
		operator := v.schema.Properties["operator"]
		for key, s := range operator.Properties {
			if !s.deployment {
				continue
			}
			for _, of := range []object{in(o, "spec"), pod, container} {
				if value, there := of[key]; there {
					s.Default = value
				}
			}
		}
		return nil
	}
	return errors.New("config/default has no Deployment")
}
