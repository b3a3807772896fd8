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
