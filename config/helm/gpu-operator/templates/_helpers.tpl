{{/* The label app.kubernetes.io/name. */}}
{{- define "gpu-operator.name" -}}
{{ .Values.nameOverride | default "gpu-operator" | toString | trunc 63 | trimSuffix "-" | quote }}
{{- end }}

{{/* Labels of every object, in addition to app.kubernetes.io/name. */}}
{{- define "gpu-operator.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | trunc 63 | trimSuffix "-" | quote }}
{{- end }}

{{/* All labels of an object that is not in config/. */}}
{{- define "gpu-operator.allLabels" -}}
app.kubernetes.io/name: {{ include "gpu-operator.name" . }}
{{ include "gpu-operator.labels" . }}
{{- end }}

{{/* The value of the block operator with this name, as JSON, or the default. Arguments: root, name, JSON. */}}
{{- define "gpu-operator.setting" -}}
{{- $value := get ((index . 0).Values.operator | default dict) (index . 1) -}}
{{- $isSet := hasKey ((index . 0).Values.operator | default dict) (index . 1) -}}
{{- if or (not $isSet) (kindIs "invalid" $value) }}{{ index . 2 -}}
{{- else if kindIs "map" $value }}{{ include "gpu-operator.withoutNulls" $value -}}
{{- else }}{{ toJson $value }}{{ end }}
{{- end }}

{{/* A map without keys that are null, also in the maps that it has, as JSON: null removes a key. Argument: the map. */}}
{{- define "gpu-operator.withoutNulls" -}}
{{- $all := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $kept := dict -}}
{{- range $name, $inner := $value }}{{ if not (kindIs "invalid" $inner) }}{{ $_ := set $kept $name $inner }}{{ end }}{{ end -}}
{{- $_ := set $all $key $kept -}}
{{- else if not (kindIs "invalid" $value) -}}{{- $_ := set $all $key $value -}}{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end }}

{{/* The value of the block operator with this name, if it is set. Arguments: root, name. */}}
{{- define "gpu-operator.given" -}}
{{- with get ((index . 0).Values.operator | default dict) (index . 1) }}
{{- index $ 1 }}: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Additional keys for a map, as strings; those in the list are fixed, and those that are null left out. Arguments: root, name, list. */}}
{{- define "gpu-operator.added" -}}
{{- $lines := list -}}
{{- range $key, $value := get ((index . 0).Values.operator | default dict) (index . 1) | default dict -}}
{{- if not (or (has $key (index $ 2)) (kindIs "invalid" $value)) -}}
{{- $lines = append $lines (printf "%s: %s" (toJson $key) (include "gpu-operator.text" $value | trim | toJson)) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end }}

{{/* Additional environment variables. Arguments: root, names that are fixed. */}}
{{- define "gpu-operator.env" -}}
{{- $variables := ((index . 0).Values.operator | default dict).env | default list | compact -}}
{{- range $variables -}}
{{- if has .name (index $ 1) -}}
{{- fail (printf "operator.env: %s is set by the chart: remove it" .name) -}}
{{- end -}}
{{- end -}}
{{- with $variables }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* Flags of the operator from operator.logging, operator.metrics, operator.takeOver and operator.args. */}}
{{- define "gpu-operator.args" -}}
{{- $operator := .Values.operator | default dict -}}
{{- $logging := $operator.logging | default dict -}}
{{- $level := include "gpu-operator.text" ($logging.level | default "info") | lower -}}
{{- if not (or (has $level (list "debug" "info" "error" "panic")) (regexMatch "^[0-9]+$" $level)) -}}
{{- fail (printf "operator.logging.level is %q: set it to error, info, debug or a number" $level) -}}
{{- end -}}
{{- $args := list -}}
{{- if not (has $level (list "info" "0")) }}{{ $args = append $args (printf "--zap-log-level=%s" $level) }}{{ end -}}
{{- with $logging.timeEncoding }}{{ $args = append $args (printf "--zap-time-encoding=%s" .) }}{{ end -}}
{{- if $logging.develMode }}{{ $args = append $args "--zap-devel" }}{{ end -}}
{{- if include "gpu-operator.plainMetrics" . }}{{ $args = append $args "--metrics-secure=false" }}{{ end -}}
{{- if $operator.takeOver }}{{ $args = append $args "--take-over" }}{{ end -}}
{{- range concat $args ($operator.args | default list) }}
{{- if not (kindIs "invalid" .) }}
- {{ include "gpu-operator.text" . | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty if the operator's metrics are served over HTTP. */}}
{{- define "gpu-operator.plainMetrics" -}}
{{- if eq (dig "metrics" "secure" true (.Values.operator | default dict)) false }}yes{{ end -}}
{{- end }}

{{/* Annotations for a Prometheus that finds pods by them. */}}
{{- define "gpu-operator.scrape" -}}
{{- if include "gpu-operator.plainMetrics" . -}}
prometheus.io/scrape: "true"
prometheus.io/port: "8080"
prometheus.io/path: /metrics
{{- end -}}
{{- end }}

{{/* The operator's image: by default that of the release, by its digest. A copy in another repository need not have the
same digest, so that it is used by its tag. NVIDIA's operator, in values for its chart, means this one, in the same
registry unless that is NVIDIA's. A mirror replaces the registry, as for the operands. */}}
{{- define "gpu-operator.image" -}}
{{- $named := include "gpu-operator.named" . | fromJson -}}
{{- $reference := (.Values.operator | default dict).image | default "" -}}
{{- if $named.isNvidias -}}
{{- $_ := set $named "name" "" -}}{{- $_ := set $named "version" "" -}}
{{- if $named.inNvidiasRegistry }}{{ $_ := set $named "repository" "" }}{{ end -}}
{{- end -}}
{{- if or $named.isNvidias (not $named.isReference) -}}
{{- $release := include "gpu-operator.release" . | fromJson -}}
{{- $repository := $named.repository | default $release.repository | trimSuffix "/" -}}
{{- $image := $named.name | default $release.image | default "gpu-operator" -}}
{{- $version := $named.version -}}
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

{{/* The parts of the image that the values name, as JSON, and whether it is that of NVIDIA's operator. internal/policy/image
has the same rule for the validator. Argument: root. */}}
{{- define "gpu-operator.named" -}}
{{- $operator := .Values.operator | default dict -}}
{{- $repository := $operator.repository | default "" -}}
{{- $name := $operator.image | default "" -}}
{{- if kindIs "map" $name }}{{ include "gpu-operator.refuseWrong" . }}{{ end -}}
{{- $version := $operator.version | default "" | toString -}}
{{- $isReference := regexMatch "[/:@]" $name -}}
{{- if $isReference -}}
{{- if or $repository $version -}}
{{- fail "operator.image holds a full reference ('/', ':' or '@'), and repository or version is set too: set image to the name only, or remove repository and version" -}}
{{- end -}}
{{- $version = regexFind "[:@][^/]*$" $name | trimPrefix ":" | trimPrefix "@" -}}
{{- $repository = dir $name | trimPrefix "." -}}
{{- $name = regexReplaceAll "[:@].*$" (base $name) "" -}}
{{- end -}}
{{- $inRegistry := regexMatch "^(nvcr|ghcr)[.]io/nvidia/" (printf "%s/" $repository) -}}
{{- $isRelease := or (regexMatch "^v?(2[2-9]|[3-9][0-9])[.][0-9]" $version) (and (regexMatch "^v?1[.]([0-9]|1[01])[.][0-9]" $version) (regexMatch "(^|/)nvidia(/cloud-native)?$" $repository)) -}}
{{- $inTag := regexMatch "(^|[-_.])gpu-operator(-validator[-_.]|[-_.]v?(2[2-9]|[3-9][0-9])[.][0-9])|(^|[-_.])gpu-operator-validator$" $version -}}
{{- $isNvidias := or $inRegistry $inTag (regexMatch "(^|[-_.])gpu-operator-validator$" $name) (and $isRelease (or (has $name (list "" "gpu-operator")) (hasSuffix "-gpu-operator" $name))) -}}
{{- dict "repository" $repository "name" $name "version" $version "isReference" $isReference "isNvidias" $isNvidias "inNvidiasRegistry" $inRegistry | toJson -}}
{{- end }}

{{/* Pull secrets of the operator's own pods, as a field of a pod. */}}
{{- define "gpu-operator.pullSecrets" -}}
{{- $names := concat ((.Values.operator | default dict).imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) | compact | uniq -}}
{{- with $names }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The keys of the taints that the operator may change, as a CEL list: those that are always allowed, and those of
nodeStartup.taints, which the rule of that field keeps free of quotes. Arguments: root, the former. */}}
{{- define "gpu-operator.ownTaints" -}}
{{- $keys := index . 1 -}}
{{- range ((index . 0).Values.nodeStartup | default dict).taints | default list | compact -}}
{{- $keys = append $keys (.key | default "" | toString) -}}
{{- end -}}
{{- printf "['%s']" (join "', '" (uniq $keys)) | quote -}}
{{- end }}

{{/* A number without an exponent; strings are not changed. */}}
{{- define "gpu-operator.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- else }}{{ toString . }}{{ end -}}
{{- end }}

{{/* Fails on rules to leave out of the policy for GPU pods that it does not have, and if none would be left, which the
API server does not accept. Arguments: root, rules. */}}
{{- define "gpu-operator.checkGPUPodRules" -}}
{{- $rules := index . 1 -}}
{{- /* --set of {} is a list with an empty string. */ -}}
{{- $disabled := (index . 0).Values.gpuPodPolicyDisabledRules | default list | compact -}}
{{- range $disabled -}}
{{- if not (has . $rules) -}}
{{- fail (printf "gpuPodPolicyDisabledRules: there is no rule %q: the rules are %s" (toString .) (join ", " $rules)) -}}
{{- end -}}
{{- end -}}
{{- if eq (len (uniq $disabled)) (len $rules) -}}
{{- fail "gpuPodPolicyDisabledRules turns off every rule: remove it, and gpuPodPolicy" -}}
{{- end -}}
{{- end }}
