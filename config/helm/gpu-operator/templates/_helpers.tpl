{{/* Labels of every object, in addition to app.kubernetes.io/name from config/. */}}
{{- define "gpu-operator.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | trunc 63 | trimSuffix "-" | quote }}
{{- end }}

{{/* All labels of an object that is not in config/. */}}
{{- define "gpu-operator.allLabels" -}}
app.kubernetes.io/name: gpu-operator
{{ include "gpu-operator.labels" . }}
{{- end }}

{{/* The value of the block operator with this name, as JSON, or the default. Arguments: root, name, JSON. */}}
{{- define "gpu-operator.setting" -}}
{{- $value := get ((index . 0).Values.operator | default dict) (index . 1) -}}
{{- $isSet := hasKey ((index . 0).Values.operator | default dict) (index . 1) -}}
{{- if and $isSet (not (kindIs "invalid" $value)) }}{{ toJson $value }}{{ else }}{{ index . 2 }}{{ end }}
{{- end }}

{{/* The value of the block operator with this name, if it is set. Arguments: root, name. */}}
{{- define "gpu-operator.given" -}}
{{- with get ((index . 0).Values.operator | default dict) (index . 1) }}
{{- index $ 1 }}: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Additional keys for a map, as strings; those in the list are fixed. Arguments: root, name, list. */}}
{{- define "gpu-operator.added" -}}
{{- $lines := list -}}
{{- range $key, $value := get ((index . 0).Values.operator | default dict) (index . 1) | default dict -}}
{{- if not (has $key (index $ 2)) -}}
{{- $lines = append $lines (printf "%s: %s" (toJson $key) (include "gpu-operator.text" $value | trim | toJson)) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end }}

{{/* Additional environment variables. Arguments: root, names that are fixed. */}}
{{- define "gpu-operator.env" -}}
{{- range ((index . 0).Values.operator | default dict).env -}}
{{- if has .name (index $ 1) -}}
{{- fail (printf "operator.env: %s is set by the chart: remove it" .name) -}}
{{- end -}}
{{- end -}}
{{- with ((index . 0).Values.operator | default dict).env }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* Flags of the operator from operator.logging. */}}
{{- define "gpu-operator.args" -}}
{{- $logging := (.Values.operator | default dict).logging | default dict -}}
{{- $level := $logging.level | default "info" | toString -}}
{{- if not (or (has $level (list "debug" "info" "warn" "error" "dpanic" "panic" "fatal")) (regexMatch "^[0-9]+$" $level)) -}}
{{- fail (printf "operator.logging.level is %q: set it to info or debug" $level) -}}
{{- end -}}
{{- if or (eq $level "debug") (regexMatch "^[1-9][0-9]*$" $level) $logging.develMode }}- --debug{{ end -}}
{{- end }}

{{/* The operator's image: by default that of the release, by its digest. A copy in another repository need not have the
same digest, so that it is used by its tag. NVIDIA's operator, in values for its chart, means this one. A mirror replaces
the registry, as for the operands. */}}
{{- define "gpu-operator.image" -}}
{{- $operator := .Values.operator | default dict -}}
{{- $repository := $operator.repository | default "" -}}
{{- $image := $operator.image | default "" -}}
{{- $version := $operator.version | default "" | toString -}}
{{- $reference := "" -}}
{{- if regexMatch "[/:@]" $image -}}
{{- if or $repository $version -}}
{{- fail "operator.image holds a full reference ('/', ':' or '@'), and repository or version is set too: set image to the name only, or remove repository and version" -}}
{{- end -}}
{{- $reference = $image -}}
{{- else -}}
{{- if include "gpu-operator.isNvidias" . -}}
{{- $repository = "" }}{{ $version = "" -}}
{{- end -}}
{{- $release := include "gpu-operator.release" . | fromJson -}}
{{- $repository = $repository | default $release.repository | trimSuffix "/" -}}
{{- $image = $image | default $release.image | default "gpu-operator" -}}
{{- if not $repository -}}
{{- fail "this chart is not released and has no image: set operator.repository and operator.version to an image that you built and pushed, such as --set operator.repository=registry.example.com,operator.version=dev; see docs/install.md" -}}
{{- end -}}
{{- if and (eq $repository $release.repository) (eq $image $release.image) -}}
{{- $version = $version | default $release.version -}}
{{- end -}}
{{- $version = $version | default .Chart.AppVersion -}}
{{- $reference = printf "%s/%s%s%s" $repository $image (ternary "@" ":" (hasPrefix "sha256:" $version)) $version -}}
{{- end -}}
{{- with (.Values.global | default dict).registry -}}
{{- if not (hasPrefix (printf "%s/" .) $reference) -}}
{{- $parts := splitn "/" 2 $reference -}}
{{- if not (regexMatch "[.:]|^localhost$" $parts._0) -}}
{{- $reference = printf "%s/%s" . (ternary (printf "library/%s" $reference) $reference (not (contains "/" $reference))) -}}
{{- else -}}
{{- $reference = printf "%s/%s" . $parts._1 -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $reference -}}
{{- end }}

{{/* Not empty if the values set the operator's image to NVIDIA's operator. */}}
{{- define "gpu-operator.isNvidias" -}}
{{- $operator := .Values.operator | default dict -}}
{{- if and (eq ($operator.repository | default "") "nvcr.io/nvidia") (has ($operator.image | default "") (list "" "gpu-operator")) }}yes{{ end -}}
{{- end }}

{{/* Pull secrets of the operator's own pods, as a field of a pod. */}}
{{- define "gpu-operator.pullSecrets" -}}
{{- $names := concat ((.Values.operator | default dict).imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) | uniq -}}
{{- with $names }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The keys of the taints that the operator may change, as a CEL list: those that are always allowed, and those of
nodeStartup.taints. Arguments: root, the former. */}}
{{- define "gpu-operator.ownTaints" -}}
{{- $keys := index . 1 -}}
{{- range ((index . 0).Values.nodeStartup | default dict).taints -}}
{{- $key := .key | default "" | toString -}}
{{- if not (regexMatch "^[-a-zA-Z0-9_./]+$" $key) -}}
{{- fail (printf "nodeStartup.taints: %q is no key of a taint: use a key such as example.com/gpu-starting" $key) -}}
{{- end -}}
{{- $keys = append $keys $key -}}
{{- end -}}
{{- printf "['%s']" (join "', '" (uniq $keys)) | quote -}}
{{- end }}

{{/* A number without an exponent; strings are not changed. */}}
{{- define "gpu-operator.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- else }}{{ toString . }}{{ end -}}
{{- end }}
