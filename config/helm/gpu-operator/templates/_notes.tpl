{{/* What the notes say of values that are not in the policy, a line each: the operator, which has the policy alone, adds
them to its status. Helm shows no notes of subcharts, and other installers show none. What the default values of
NVIDIA's chart have is left out, as no user need have chosen it. Argument: root. */}}
{{- define "gpu-operator.chartNotes" -}}
{{- $lines := list -}}
{{- if not (include "gpu-operator.named" . | fromJson).inNvidiasRegistry -}}
{{- $lines = append $lines (include "gpu-operator.nvidiasImage" .) -}}
{{- end -}}
{{- $lines = concat $lines (include "gpu-operator.withoutEffect" (dict "root" . "chart" true) | splitList "\n") -}}
{{- range (include "gpu-operator.unknown" . | fromJson).noted }}{{ $lines = append $lines . }}{{ end -}}
{{- $lines = concat $lines (include "gpu-operator.doubtfulValues" . | splitList "\n") -}}
{{- $notes := list -}}
{{- range $lines }}{{ with trim . }}{{ $notes = append $notes . }}{{ end }}{{ end -}}
{{- join "\n" $notes | trunc 4096 -}}
{{- end }}

{{/* A sentence if the values name the image of NVIDIA's operator. Argument: root. */}}
{{- define "gpu-operator.nvidiasImage" -}}
{{- $named := include "gpu-operator.named" . | fromJson -}}
{{- if $named.isNvidias -}}
operator.repository, image and version name the image of NVIDIA's operator: {{ include "gpu-operator.image" . }} is used instead.
{{- if not $named.inNvidiasRegistry }} If it is not there, copy it there, or set operator.repository to the registry and path that have it, and remove operator.version.
{{- end -}}
{{- end -}}
{{- end }}

{{/* A line for each value that is set and has no effect. Arguments: root; chart, to leave out those of the policy, which
the operator reports itself, and the blocks that the default values of NVIDIA's chart have. */}}
{{- define "gpu-operator.withoutEffect" -}}
{{- $chart := .chart -}}{{- $root := .root -}}
{{- range ($root.Files.Get "files/keys.json" | fromJson).without -}}
{{- $value := $root.Values -}}
{{- range splitList "." .path -}}
{{- if kindIs "map" $value }}{{ $value = get $value . }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{/* A value that turns something off, or is empty, needs no note. */}}
{{- $reported := and .chart (not (has .path (list "draDriver" "node-feature-discovery"))) -}}
{{- if and $value (or $reported (not $chart)) (not (and (kindIs "map" $value) (eq (dig "enabled" true (kindIs "map" $value | ternary $value dict)) false))) }}
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
{{- include "gpu-operator.doubtfulFields" . -}}
{{- include "gpu-operator.doubtfulValues" . -}}
{{- with include "gpu-operator.noPluginDefault" . }}
  {{ . }}
{{- end -}}
{{- end }}

{{/* A line for each field of the policy that has no effect with this value, or that is deprecated and has one. The
operator adds both to its status by itself. Argument: root. */}}
{{- define "gpu-operator.doubtfulFields" -}}
{{- $sandbox := .Values.sandboxWorkloads | default dict -}}
{{- $isForMachines := ne ($sandbox.defaultWorkload | default "container") "container" -}}
{{- if $sandbox.enabled }}
  sandboxWorkloads.enabled: nodes for virtual machines get no operands, as they are not supported yet
{{- if $isForMachines }}. With defaultWorkload {{ $sandbox.defaultWorkload }} these are all nodes without the label nvidia.com/gpu.workload.config{{ end -}}
{{- else if $isForMachines }}
  sandboxWorkloads.defaultWorkload: has no effect without sandboxWorkloads.enabled, and virtual machines are not supported yet: remove it
{{- end -}}
{{- if ((.Values.driver | default dict).licensingConfig | default dict).configMapName }}
  driver.licensingConfig.configMapName: deprecated; use driver.licensingConfig.secretName
{{- end -}}
{{- end }}

{{/* A line for each value of the chart alone that may not mean what its author intended. Argument: root. */}}
{{- define "gpu-operator.doubtfulValues" -}}
{{- range $block := list "devicePlugin" "migManager" "dcgmExporter" -}}
{{- $config := (get $.Values $block | default dict).config | default dict -}}
{{- if and $config.data (not $config.create) }}
  {{ $block }}.config.data: not used, as {{ $block }}.config.create is not true
{{- else if and $config.create (not $config.data) }}
  {{ $block }}.config.create: no ConfigMap is created, as {{ $block }}.config.data is empty
{{- end -}}
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
