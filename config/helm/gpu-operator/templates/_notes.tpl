{{/* A line for each value that is set and has no effect. Argument: root. */}}
{{- define "gpu-operator.withoutEffect" -}}
{{- range (.Files.Get "files/keys.json" | fromJson).without -}}
{{- $value := $.Values -}}
{{- range splitList "." .path -}}
{{- if kindIs "map" $value }}{{ $value = get $value . }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{/* A value that turns something off, or is empty, needs no note. */}}
{{- if and $value (not (and (kindIs "map" $value) (eq (dig "enabled" true (kindIs "map" $value | ternary $value dict)) false))) }}
  {{ .path }}: {{ .instead }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A line for each version that NVIDIA has not published in this form. Argument: root. */}}
{{- define "gpu-operator.doubtful" -}}
{{- range $block := list "toolkit" "devicePlugin" "gfd" "migManager" -}}
{{- $values := get $.Values $block | default dict -}}
{{- $version := $values.version | default "" | toString -}}
{{- if and (regexMatch "^[0-9]+[.][0-9]" $version) (hasPrefix "nvcr.io/" ($values.repository | default "nvcr.io/")) }}
  {{ $block }}.version is {{ $version }}: NVIDIA's tags begin with v, as in v{{ $version }}
{{- end -}}
{{- end -}}
{{- range $block := list "devicePlugin" "migManager" "dcgmExporter" -}}
{{- $config := (get $.Values $block | default dict).config | default dict -}}
{{- if and $config.data (not $config.create) }}
  {{ $block }}.config.data: not used, as {{ $block }}.config.create is not true
{{- else if and $config.create (not $config.data) }}
  {{ $block }}.config.create: no ConfigMap is created, as {{ $block }}.config.data is empty
{{- end -}}
{{- end -}}
{{- with include "gpu-operator.noPluginDefault" . }}
  {{ . }}
{{- end -}}
{{- if and (.Values.dashboards | default dict).enabled (not (dig "rules" "enabled" false (.Values.monitoring | default dict))) }}
  dashboards.enabled: the dashboards show series of the recording rules: set monitoring.rules.enabled, unless you install the rules in another way
{{- end -}}
{{- if and (eq (dig "use_ocp_driver_toolkit" true (.Values.operator | default dict)) false) (or (dig "openshift" false (.Values.platform | default dict)) (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}
  operator.use_ocp_driver_toolkit: false has no effect, as with NVIDIA's chart. To build drivers without OpenShift's driver toolkit, set it in the ClusterPolicy with kubectl patch
{{- end -}}
{{- end }}

{{/* A sentence if nodes may get an empty configuration of the device plugin, as no key is named. The operator resolves
the key (internal/operand): the only one, else default or any. Argument: root. */}}
{{- define "gpu-operator.noPluginDefault" -}}
{{- $config := (.Values.devicePlugin | default dict).config | default dict -}}
{{- if and $config.name (not $config.default) -}}
{{- $found := lookup "v1" "ConfigMap" .Release.Namespace $config.name -}}
{{- if and $config.create $config.data }}{{ $found = dict "data" $config.data }}{{ end -}}
{{- $keys := concat (keys ($found.data | default dict)) (keys ($found.binaryData | default dict)) -}}
{{- if not $found -}}
devicePlugin.config.default is not set: the operator uses the only key of ConfigMap {{ $config.name }}, or default or any. If it has none of these, nodes without the label nvidia.com/device-plugin.config get an empty configuration: set it to one of the keys
{{- else if not (or (eq (len $keys) 1) (has "default" $keys) (has "any" $keys)) -}}
devicePlugin.config.default is not set, and none of the {{ len $keys }} keys of ConfigMap {{ $config.name }} is default or any: nodes without the label nvidia.com/device-plugin.config get an empty configuration. Set it to one of the keys
{{- end -}}
{{- end -}}
{{- end }}

{{/* A sentence if the cluster is newer than what this release has been tested on. The operator works there unless
Kubernetes removed what it uses, so that this is no error. Argument: root. */}}
{{- define "gpu-operator.untested" -}}
{{- $newest := include "gpu-operator.newestKubernetes" . -}}
{{- $cluster := .Capabilities.KubeVersion -}}
{{- if or (gt (int $cluster.Major) 1) (gt ($cluster.Minor | trimSuffix "+" | int) (splitList "." $newest | last | int)) -}}
Warning: Kubernetes {{ $cluster.Version }} is newer than this release has been tested on, {{ include "gpu-operator.oldestKubernetes" . }} to {{ $newest }}.
{{- end -}}
{{- end }}

{{/* A sentence if OpenShift's cluster monitoring does not scrape the namespace, which Helm does not install and so cannot
label. Argument: root. */}}
{{- define "gpu-operator.unmonitored" -}}
{{- if dig "openshift" false (.Values.platform | default dict) -}}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace | default dict -}}
{{- if ne (dig "metadata" "labels" "openshift.io/cluster-monitoring" "" $namespace) "true" -}}
OpenShift's cluster monitoring scrapes only labelled namespaces. Unless user workload monitoring scrapes this one:
  oc label namespace {{ .Release.Namespace }} openshift.io/cluster-monitoring=true
{{- end -}}
{{- end -}}
{{- end }}
